"""Measurements of livi's building blocks: `python -m benchmarks` lists them and runs the quick set of each."""
