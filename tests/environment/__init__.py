"""Finds or starts the services that the tests talk to; standard library only.

It runs before anything is installed (`python3 -m tests.environment ensure`), so nothing here may
import a third-party package, isolation.py apart, which only the fixtures use.
"""
