"""Tests of the commands: exit codes, shapes, words, pictures."""
