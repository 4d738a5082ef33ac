"""Lanes keep order within and bound what runs at once."""

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
    lanes = KeyedExecutor[int](None, 4, done.append)
    for number in range(3):
        lanes.put("a", number)
        assert done[-1] == number
    assert lanes.wait_idle(0)


def test_a_job_put_by_a_job_of_its_lane_runs_after_it() -> None:
    story: list[str] = []
    lanes = KeyedExecutor[Job](None, 4, run)

    def first() -> None:
        lanes.put("a", lambda: story.append("second"))
        story.append("first")

    lanes.put("a", first)
    assert story == ["first", "second"]


def test_a_job_put_by_a_job_of_another_lane_runs_at_once() -> None:
    story: list[str] = []
    lanes = KeyedExecutor[Job](None, 4, run)

    def first() -> None:
        lanes.put("b", lambda: story.append("other"))
        story.append("first")

    lanes.put("a", first)
    assert story == ["other", "first"]


def test_a_job_that_fails_stops_neither_its_lane_nor_the_others() -> None:
    done: list[int] = []

    def do(number: int) -> None:
        if number == 0:
            raise RuntimeError("a defect")
        done.append(number)

    with ThreadPoolExecutor(1) as pool:
        lanes = KeyedExecutor[int](pool, 1, do)
        for number in range(3):
            lanes.put("a", number)
        lanes.put("b", 3)
        assert until(lambda: sorted(done) == [1, 2, 3])
        assert lanes.wait_idle(5)


def test_closing_drops_what_waits_and_lets_what_runs_end() -> None:
    gate, done = Event(), list[int]()

    def do(number: int) -> None:
        gate.wait(5)
        done.append(number)

    with ThreadPoolExecutor(2) as pool:
        lanes = KeyedExecutor[int](pool, 2, do)
        lanes.put("a", 1)
        lanes.put("a", 2)
        assert lanes.held_up() == (("a", 1, (2,)),)
        lanes.close()
        lanes.put("a", 3)
        assert not lanes.wait_idle(0)
        gate.set()
        assert lanes.wait_idle(5)
        assert done == [1]


def test_an_executor_that_is_gone_is_no_error() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    lanes = KeyedExecutor[Job](pool, 2, run)
    lanes.put("a", lambda: None)
    assert lanes.wait_idle(0)
