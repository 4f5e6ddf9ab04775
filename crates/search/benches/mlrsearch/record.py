#!/usr/bin/env python3
"""Records what the reference MLRsearch (1.2.1, `pip install MLRsearch==1.2.1`) does on the simulations of
`benches/mlrsearch.rs`, as lines of `reference.csv`: group, limit, seed, trials, seconds of trial time, and the highest
load found for the last goal (0: none).

usage: record.py > reference.csv
"""
import sys
import warnings

from MLRsearch import (AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal)

MASK = (1 << 64) - 1


class Random:
    """SplitMix64 (Steele, Lea and Flood 2014), as in the benchmark."""

    def __init__(self, seed):
        self.state = seed

    def unit(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) / (1 << 53)


class Device(AbstractMeasurer):
    """A tail drop at `limit`; `jitter` moves the limit from trial to trial, `hiccups` of the trials lose 0.1 %."""

    def __init__(self, limit, seed, jitter, hiccups):
        self.limit, self.jitter, self.hiccups = limit, jitter, hiccups
        self.random, self.trials, self.seconds = Random(seed), 0, 0.0

    def measure(self, intended_duration, intended_load):
        moved, hiccup = self.random.unit(), self.random.unit()
        limit = self.limit * (1 + self.jitter * (moved - 0.5))
        ratio = max(0.0, 1 - limit / intended_load) + (0.001 if hiccup < self.hiccups else 0.0)
        sent = round(intended_load * intended_duration)
        lost = round(sent * min(ratio, 1.0))
        self.trials += 1
        self.seconds += intended_duration
        return MeasurementResult(
            intended_duration=intended_duration, intended_load=intended_load, offered_count=sent, loss_count=lost,
            intended_count=sent, offered_duration=intended_duration, duration_with_overheads=intended_duration)


def goal(loss=0.0, exceed=0.5, width=0.005, initial=1.0, final=1.0, total=21.0):
    return SearchGoal(loss_ratio=loss, exceed_ratio=exceed, relative_width=width, initial_trial_duration=initial,
                      final_trial_duration=final, duration_sum=total, preceding_targets=2, fail_fast=False)


LIMITS = [50e3, 300e3, 1e6, 2.5e6, 5e6, 9e6]
# group: goals, jitter, hiccups, limits, seeds
GROUPS = [
    ("hard", [goal()], 0.0, 0.0, LIMITS, [1]),
    ("two goals", [goal(loss=0.005), goal()], 0.01, 0.0, LIMITS, [1, 2]),
    ("jitter", [goal()], 0.02, 0.0, LIMITS, [1, 2]),
    ("hiccups 20", [goal()], 0.0, 0.2, LIMITS, [1, 2]),
    ("hiccups 40", [goal()], 0.0, 0.4, [1e6], range(1, 61)),
    ("long", [goal(exceed=0.0, final=60.0, total=60.0)], 0.0, 0.0, LIMITS, [1]),
    ("short", [goal(width=0.01, initial=0.25, total=3.0)], 0.01, 0.1, LIMITS, [1, 2]),
]

warnings.simplefilter("ignore")
for group, goals, jitter, hiccups, limits, seeds in GROUPS:
    for limit in limits:
        for seed in seeds:
            config = Config()
            config.min_load, config.max_load, config.warmup_duration = 10e3, 10e6, None
            config.search_duration_max = 1e9
            config.goals = goals
            device = Device(limit, seed, jitter, hiccups)
            results = MultipleLossRatioSearch(config=config).search(device, debug=lambda _: None)
            bound = results[goals[-1]].relevant_lower_bound
            found = float(bound) if bound is not None else 0.0
            sys.stdout.write(f"{group},{limit:.0f},{seed},{device.trials},{device.seconds:.2f},{found:.0f}\n")
