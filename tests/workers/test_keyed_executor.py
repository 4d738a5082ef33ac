"""A keyed executor keeps order within a key and bounds what runs at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.workers.world import until
from workers.keyed_executor import KeyedExecutor

Job = Callable[[], None]


def run(job: Job) -> None:
    job()


def test_without_threads_the_caller_does_the_work() -> None:
    done: list[int] = []
    executor = KeyedExecutor[int](None, 4, done.append)
    for number in range(3):
        executor.put("a", number)
        assert done[-1] == number
    assert executor.wait_idle(0)


def test_a_job_put_by_a_job_of_its_key_runs_after_it() -> None:
    order: list[str] = []
    executor = KeyedExecutor[Job](None, 4, run)

    def first() -> None:
        executor.put("a", lambda: order.append("second"))
        order.append("first")

    executor.put("a", first)
    assert order == ["first", "second"]


def test_a_job_put_by_a_job_of_another_key_runs_at_once() -> None:
    order: list[str] = []
    executor = KeyedExecutor[Job](None, 4, run)

    def first() -> None:
        executor.put("b", lambda: order.append("other"))
        order.append("first")

    executor.put("a", first)
    assert order == ["other", "first"]


def test_a_job_that_fails_stops_neither_its_key_nor_the_others() -> None:
    done: list[int] = []

    def do(number: int) -> None:
        if number == 0:
            raise RuntimeError("a defect")
        done.append(number)

    with ThreadPoolExecutor(1) as pool:
        executor = KeyedExecutor[int](pool, 1, do)
        for number in range(3):
            executor.put("a", number)
        executor.put("b", 3)
        assert until(lambda: sorted(done) == [1, 2, 3])
        assert executor.wait_idle(5)


def test_closing_drops_what_waits_and_lets_what_runs_end() -> None:
    gate, done = Event(), list[int]()

    def do(number: int) -> None:
        gate.wait(5)
        done.append(number)

    with ThreadPoolExecutor(2) as pool:
        executor = KeyedExecutor[int](pool, 2, do)
        executor.put("a", 1)
        executor.put("a", 2)
        assert executor.blocked() == (("a", 1, (2,)),)
        executor.close()
        executor.put("a", 3)
        assert not executor.wait_idle(0)
        gate.set()
        assert executor.wait_idle(5)
        assert done == [1]


def test_an_executor_that_is_gone_is_no_error() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    executor = KeyedExecutor[Job](pool, 2, run)
    executor.put("a", lambda: None)
    assert executor.wait_idle(0)
