"""Does a test notice? Plants defects, one at a time; each must make a named test fail.

    python benchmarks/mutants.py [NAME...] [--jobs N] [--write FILE]      FILE: the table of all, after a whole run

A defect of a function is planted in a fork of a process that has collected the unit tests; there its test must fail, and
pass without it. All others, of scripts, constants and whole sessions, are planted in a copy of the tree. First all their
tests must pass in the unchanged copy. Then each defect is planted and its test runs alone. The test itself must fail: a
test that is skipped, or that pytest cannot collect or set up, has noticed nothing. Ends with 1 if a defect survives or
its text is not in its file exactly once. Some are written here, with what they would hide; `defects.jsonl` has those that
`mutate.py` has made and recorded. If a change takes the line of one of these away, take its line from there.

The package that is installed points at the original tree. So the copy stands first on PYTHONPATH, and the program
makes sure that Python imports iogauge from there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import io
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import mutate  # noqa: E402

LIBRARY = Path("reframe/src/iogauge")
#: Seconds that a named test may take; a planted defect may make it wait for ever.
ANSWER_S = 600


@dataclass(frozen=True)
class Mutant:
    """A defect: ``old`` stands in ``file`` of the room exactly once, and ``new`` takes its place.

    ``test`` must fail then. ``harm`` says what would happen unnoticed; ``passes``: a wrong PASS.
    A recorded one has a ``function``: ``old`` is the line, ``new`` the kind of defect.
    """

    name: str
    room: str
    file: str
    old: str
    new: str
    test: str
    harm: str
    passes: bool = False
    function: str = ""

    @property
    def path(self) -> Path:
        """The file, from the root of the tree."""
        home = LIBRARY.parent if self.room.startswith("iogauge_extras") else LIBRARY
        return home / self.room / self.file

    def places(self) -> int:
        """How often it fits its file: once, if nothing has changed there."""
        file = ROOT / self.path
        if not file.is_file():
            return 0
        return (
            len(self._made())
            if self.function
            else file.read_text(encoding="utf-8").count(self.old)
        )

    def planted(self) -> str | ast.Module:
        """The file with the defect."""
        if self.function:
            return mutate.planted(self._made()[0])
        return (
            (ROOT / self.path).read_text(encoding="utf-8").replace(self.old, self.new)
        )

    def _made(self) -> list[mutate.Defect]:
        wanted = self.function, self.old, self.new
        return [one for one in _defects_of(ROOT / self.path) if one.place[1:] == wanted]


@dataclass(frozen=True)
class Outcome:
    """What became of the test of a mutant. ``noticed``: the test itself failed."""

    mutant: Mutant
    noticed: bool
    said: str
    seconds: float


# fmt: off
WRITTEN = (
    # alarm
    Mutant(
        "alarm-forgets-damage", "iogauge_extras/page", "collect.py",
        "    damage = [_of_damage(line) for line in damaged]\n",
        "    damage: list[Trouble] = []\n",
        "tests/unit/test_alarm.py::test_a_line_that_is_no_record_is_a_trouble",
        "the alarm is silent about a damaged record, which may have been a failure",
    ),
    Mutant(
        "alarm-forgets-partition", "iogauge_extras/page", "collect.py",
        "        if partition not in measured\n",
        "        if partition in measured\n",
        "tests/unit/test_alarm.py::test_a_partition_that_was_not_measured",
        "the alarm is silent about a partition in which nothing ran",
    ),
    Mutant(
        "alarm-says-ok", "iogauge_extras/page", "collect.py",
        "    if troubles and not ending.status:",
        "    if False:",
        "tests/unit/test_alarm.py::test_a_record_that_contradicts_itself_is_not_ok",
        "an alarm that lists troubles ends with ok, because the report saw none",
    ),
    Mutant(
        "drift-keeps-status", "iogauge_extras/page", "collect.py",
        "        *([f\"{len(drifts)} metric(s) have become worse ({DRIFT})\"] if drifts else []),\n",
        "",
        "tests/unit/test_alarm.py::test_a_drift_within_the_reference_is_an_alarm",
        "an alarm lists a slow loss, and its first line says ok",
    ),
    Mutant(
        "webhook-word", "iogauge_extras/page", "receivers.py",
        '"word": self.alarm.ending.word.value,',
        '"word": "FAILED" if self.alarm.failed else "ok",',
        "tests/unit/test_send.py::test_a_program_is_told_the_word_and_the_sentence_of_the_report",
        "a webhook is told ok for a session that proved nothing",
    ),
    Mutant(
        "webhook-summary", "iogauge_extras/page", "receivers.py",
        '"summary": self.alarm.ending.sentence,',
        '"summary": self.alarm.title,',
        "tests/unit/test_send.py::test_a_program_is_told_the_word_and_the_sentence_of_the_report",
        "a webhook gets a title in place of the report's sentence",
    ),
    # calibrate
    Mutant(
        "calibrate-from-invalid", "iogauge_extras/history", "runs.py",
        '        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),\n',
        "",
        "tests/unit/test_calibrate.py::test_only_proven_values_are_runs",
        "a reference rests on runs that are INVALID",
    ),
    Mutant(
        "calibrate-over-step", "iogauge_extras/history", "runs.py",
        'if changes := statistics.change_points(values):',
        'if changes := []:',
        "tests/unit/test_calibrate.py::test_runs_that_prove_nothing_are_refused",
        "a reference rests on runs from before and after a loss",
    ),
    # cases
    Mutant(
        "hook-of-subclass-disabled", "cases", "judged.py",
        "        ours = [kind for kind in type(self).__mro__ if issubclass(kind, JudgedCheck)]",
        "        ours = [JudgedCheck]",
        "tests/unit/test_hooks.py::test_no_hook_can_be_left_out",
        "`--disable-hook` leaves out what a class below `JudgedCheck` decides",
        passes=True,
    ),
    Mutant(
        "any-verdict-is-ok", "cases", "judged.py",
        "        if self._judgement is None or self._judgement.verdict is not Verdict.PASS:",
        "        if self._judgement is None:",
        "tests/e2e/test_never_pass.py::test_a_failing_value_whose_performance_is_not_checked",
        "ReFrame ends in OK for a FAIL that `--skip-performance-check` hides",
        passes=True,
    ),
    Mutant(
        "undecided-is-ok", "cases", "judged.py",
        "        if self._judgement is None or self._judgement.verdict is not Verdict.PASS:",
        "        if self._judgement and self._judgement.verdict is not Verdict.PASS:",
        "tests/e2e/test_never_pass.py::test_nothing_judged",
        "ReFrame ends in OK for a case that was never judged",
        passes=True,
    ),
    Mutant(
        "hand-over-nothing", "cases", "judged.py",
        "            if reference is not None and decided.verdict in (Verdict.PASS, Verdict.FAIL):",
        "            if reference is not None and decided.verdict in (Verdict.PASS,):",
        "tests/e2e/test_history.py::test_what_does_not_hold_beyond_saturation_fails_by_name",
        "ReFrame does not get the reference that a FAIL misses, and does not name the metric",
    ),
    Mutant(
        "record-says-pass", "cases", "judged.py",
        "            verdict=judgement.verdict,",
        "            verdict=Verdict.PASS,",
        "tests/e2e/test_never_pass.py::test_other_unit",
        "the record of every case says PASS",
        passes=True,
    ),
    Mutant(
        "override-forgotten", "cases", "storage.py",
        "(value := getattr(self, name)) and value != default",
        "(value := getattr(self, name)) and value == default",
        "tests/e2e/test_never_pass.py::test_what_a_run_sets_otherwise_is_compared_with_nothing",
        "what `-S` sets is compared with references for something else",
        passes=True,
    ),
    Mutant(
        "operands-of-an-earlier-run", "iogauge_extras/derived", "check.py",
        "        selected = current().open_cases",
        "        selected = set[tuple[str, str, str, str]]()",
        "tests/unit/test_derive.py::test_operands_that_this_run_has_not_decided_are_waited_for",
        "a derived value is computed before this run has decided its operands",
    ),
    Mutant(
        "checkpoint-rounded-down", "iogauge_extras/loads", "checkpoint_check.py",
        "        shares = -(-self.total_bytes // step)",
        "        shares = self.total_bytes // step",
        "tests/e2e/test_loads.py::test_the_whole_state_is_saved_and_read_cold",
        "a checkpoint saves less than the model's state",
        passes=True,
    ),
    Mutant(
        "checkpoint-other-scale", "iogauge_extras/loads", "checkpoint_check.py",
        "            return {}\n        model, found = self._declared_model, {}",
        "            pass\n        model, found = self._declared_model, {}",
        "tests/e2e/test_loads.py::test_another_size_has_no_budget",
        "a smaller checkpoint passes by the budget of the declared one",
        passes=True,
    ),
    Mutant(
        "checkpoint-budget", "iogauge_extras/loads", "checkpoint_check.py",
        "Reference(budget_s, None, 0.0, time.unit, source)",
        "Reference(budget_s, None, 9.0, time.unit, source)",
        "tests/e2e/test_loads.py::test_a_budget_that_is_kept_passes_and_another_fails",
        "a checkpoint passes that takes ten times its budget",
        passes=True,
    ),
    Mutant(
        "samples-of-one-file", "iogauge_extras/loads", "check.py",
        "            files=_SHARDS,\n            numjobs",
        "            files=1,\n            numjobs",
        "tests/e2e/test_loads.py::test_all_processes_read_samples_of_all_large_files",
        "a training's samples come from one file of eight",
        passes=True,
    ),
    Mutant(
        "out-unknown-to-the-job", "cases", "job_files.py",
        "        out=extras.topology.out if extras.topology else (),",
        "        out=(),",
        "tests/unit/test_declared.py::test_the_job_is_told_which_storage_targets_are_out",
        "the job does not learn which storage targets are declared out",
    ),
    Mutant(
        "beside-unnamed", "iogauge_extras/loads", "interference_check.py",
        '            beside="metadata" if streaming else "write",',
        "            beside=None,",
        "tests/e2e/test_loads.py::test_each_load_is_measured_alone_and_beside_the_other",
        "Interference is judged without a look at its disturber",
        passes=True,
    ),
    Mutant(
        "ratio-to-the-first", "iogauge_extras/loads", "interference_check.py",
        'Quantity(2 * disturbed.value / (alone.value + again.value), "1")',
        'Quantity(disturbed.value / alone.value, "1")',
        "tests/e2e/test_loads.py::test_each_load_is_measured_alone_and_beside_the_other",
        "a loss by a disturber is measured against the first part alone",
    ),
    Mutant(
        "filled-not", "iogauge_extras/loads", "check.py",
        "        return replace(case, prepare=[fill], fill_bytes=most, files=files)",
        "        return replace(case, fill_bytes=most, files=files)",
        "tests/e2e/test_loads.py::test_the_target_is_as_full_as_declared_while_it_is_measured",
        "FillLevel measures a target that nobody has filled",
        passes=True,
    ),
    Mutant(
        "fill-not-planned", "iogauge_extras/loads", "check.py",
        "        return replace(case, prepare=[fill], fill_bytes=most, files=files)",
        "        return replace(case, prepare=[fill], files=files)",
        "tests/e2e/test_loads.py::test_the_target_is_as_full_as_declared_while_it_is_measured",
        "the plan of FillLevel lacks the bytes that fill the target",
    ),
    # cli
    Mutant(
        "reframe-died", "cli", "running.py",
        "    if status and not end.status:",
        "    if False:",
        "tests/e2e/test_faults.py::TestKilled::test_reframe_below_our_own_command",
        "`iogauge run` says ok though ReFrame was killed",
    ),
    Mutant(
        "gone-from-the-gate", "cli", "planning.py",
        '        missed += selected.gone(before, records, system)',
        '        selected.gone(before, records, system)',
        "tests/e2e/test_cli.py::test_gate_misses_what_it_had_before",
        "a gate passes though a case that it always measured is gone",
    ),
    Mutant(
        "report-of-damage", "cli", "reporting.py",
        "asked.records.ending(asked.gate, asked.unmeasured, endings.of_damage(asked.damaged))",
        "asked.records.ending(asked.gate, asked.unmeasured)",
        "tests/e2e/test_history.py::test_a_line_that_is_no_record_may_have_been_a_failure",
        "`iogauge report` ends with 0 for a session with a damaged record",
    ),
    # core
    Mutant(
        "lower-bound", "core", "measurement.py",
        "        return self.least <= value <= self.most",
        "        return value <= self.most",
        "tests/unit/test_verdict.py::test_the_ends_of_the_bounds_meet_the_reference",
        "the lower bound of a reference is ignored",
        passes=True,
    ),
    Mutant(
        "mib-is-mb", "core", "units.py",
        '"Mi": 2**20, "Gi": 2**30',
        '"Mi": 10**6, "Gi": 2**30',
        "tests/unit/test_units.py::test_conversion",
        "MiB/s and MB/s are the same",
    ),
    Mutant(
        "nan-in-json", "core", "untrusted.py",
        '_JSON: Final = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)',
        '_JSON: Final = json.JSONDecoder(parse_float=_finite)',
        "tests/unit/tools/test_fio.py::test_damage_by_hand",
        "NaN in the output of a tool is a number",
    ),
    # evidence
    Mutant(
        "status-of-a-phase", "evidence", "complaints.py",
        '        if run.status != 0:',
        '        if run.status > 128:',
        "tests/unit/test_evidence.py::test_a_phase_that_failed_is_named_with_the_tools_own_words",
        "a phase whose exit status is not 0 counts",
        passes=True,
    ),
    Mutant(
        "ended-by-scheduler", "evidence", "collect.py",
        '        if job_status or job_state in complaints.ENDED_BY_SCHEDULER:',
        '        if job_status:',
        "tests/unit/test_evidence.py::test_a_job_that_the_scheduler_ended_after_its_last_phase_is_not_believed",
        "a job that the scheduler ended counts if its exit status is 0",
        passes=True,
    ),
    Mutant(
        "stage-of-another-session", "evidence", "collect.py",
        "    if owner is not None and holder != owner:",
        "    if owner is not None and opened.case != owner[1]:",
        "tests/unit/test_evidence.py::test_what_another_session_left_is_no_evidence",
        "what an earlier session left in the stage directory is evidence",
        passes=True,
    ),
    Mutant(
        "lock-without-word", "evidence", "collect.py",
        "= [killed, *(",
        '= ["", *(',
        "tests/unit/test_evidence.py::test_a_lock_that_was_lost_or_is_not_proven",
        "a case whose lock was lost with its keeper counts as undisturbed",
        passes=True,
    ),
    # guards
    Mutant(
        "clock-trusts-lines-kept-back", "guards", "clock.py",
        "    if worked is None:  # Something kept",
        "    if False:  # Something kept",
        "tests/unit/test_seen.py::test_a_tool_whose_lines_were_kept_back_has_its_run_time_and_a_start",
        "a clock is believed if the tool's lines came at its end",
    ),
    Mutant(
        "clock-of-one-server", "guards", "clock.py",
        "    if len(hosts) > 1 and not one.testimony.of_tasks:",
        "    if len(hosts) >= 1 and not one.testimony.of_tasks:",
        "tests/unit/test_seen.py::test_servers_of_several_hosts_start_their_clocks_apart",
        "a slow clock of a single server is excused",
    ),
    Mutant(
        "compression-of-a-denial", "guards", "contents.py",
        "denied if declared is False else ''",
        "denied if declared is not False else ''",
        "tests/unit/test_seen.py::test_compression_that_a_node_sees_outweighs_the_site",
        "the site is told the contrary of what it declares",
    ),
    Mutant(
        "load-of-nodes-that-did-not-tell", "guards", "nodes.py",
        "    if complete:\n        busiest",
        "    if True:\n        busiest",
        "tests/unit/test_judge.py::test_a_scenario_without_metrics_is_an_error",
        "the judge breaks off if a node did not tell its load",
    ),
    Mutant(
        "objection-to-another-phase", "guards", "origin.py",
        "if one.seen.phase.name == seen.phase.name or",
        "if one.seen.phase.name != seen.phase.name or",
        "tests/unit/test_judge.py::test_fio_had_the_options_of_its_job_file",
        "an output of another execution is held against other phases alone",
    ),
    Mutant(
        "disturber-without-metadata", "guards", "witness.py",
        "        if output.disturber:\n            beside",
        "        if False:\n            beside",
        "tests/unit/test_seen.py::test_g8_knows_the_metadata_of_a_disturber",
        "metadata of a load of ours are taken for bytes that nobody wrote",
    ),
    Mutant(
        "no-reference-is-used", "judge", "case.py",
        "        if reference is not None:\n            used",
        "        if True:\n            used",
        "tests/unit/test_judge.py::test_a_target_without_history_is_judged_by_its_ceiling",
        "a metric without a reference is judged by none",
    ),
    Mutant(
        "far-below-unseen", "judge", "case.py",
        "        if name not in doubted and (",
        "        if False and (",
        "tests/unit/test_oracle.py::test_the_judge_and_the_guards_say_of_recorded_evidence_what_they_said",
        "a reference far below the figures proves little, and nobody is told",
    ),
    Mutant(
        "guard-not-listed", "guards", "catalogue.py",
        '    "G2 write-back": cache.write_back,\n',
        "",
        "tests/unit/test_judge.py::test_every_guard_that_applies_is_asked",
        "a guard is missing in the catalogue, and nobody asks it",
        passes=True,
    ),
    Mutant(
        "evictions-not-counted", "guards", "cache.py",
        "    if len(evictions) != expected:",
        "    if not evictions:",
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "the page cache of one node of two was emptied, and reads count as those of storage",
        passes=True,
    ),
    Mutant(
        "fetched-share", "guards", "cache.py",
        "count < (1 - BYTES.share) * read:",
        "count < 0.1 * read:",
        "tests/unit/test_guards.py::test_g1_tasks_must_have_fetched_what_they_read",
        "a read of which a tenth came from storage counts as one of storage",
        passes=True,
    ),
    Mutant(
        "disks-not-asked", "guards", "witness.py",
        "        words += _at_most(f\"a device below {source or 'the mount'} moved\", least.way(way))",
        "        pass",
        "tests/unit/test_guards.py::test_g8_refuses_bytes_that_one_of_the_kernels_counts_lacks",
        "bytes that a device under the mount moved count, though no disk did",
        passes=True,
    ),
    Mutant(
        "read-twice", "guards", "witness.py",
        "asked > round(most):",
        "asked > 9 * round(most):",
        "tests/unit/test_guards.py::test_g8_refuses_tasks_that_read_their_data_twice",
        "a wrapper reads the files first, and the tool reads them from the page cache",
        passes=True,
    ),
    Mutant(
        "all-fetched-again", "guards", "witness.py",
        "beside = max(beside, claimed // _DROPPED)",
        "beside = max(beside, claimed)",
        "tests/unit/test_seen.py::test_g8_lets_a_buffered_read_fetch_a_quarter_again",
        "a tool reads its data twice from storage, and its rate counts them once",
        passes=True,
    ),
    Mutant(
        "requests-not-counted", "guards", "others.py",
        "        if total and theirs >= FOREIGN_REQUESTS:",
        "        if total and theirs >= FOREIGN_BYTES:",
        "tests/unit/test_guards.py::test_g19_counts_requests_if_all_are_small",
        "others have half of the requests of a slow disk, in few bytes",
        passes=True,
    ),
    Mutant(
        "removals-not-compared", "guards", "others.py",
        'if done == "removed" and not case.kind.frees:',
        'if done == "removed":',
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "a tool renames files, and its rate counts them as removed",
        passes=True,
    ),
    Mutant(
        "direct-through-pages", "guards", "cache.py",
        "if not (direct and case.kind.past_pages and case.traits.honours_o_direct):",
        "if direct:",
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "a library drops O_DIRECT, and a buffered figure stands for a direct one",
        passes=True,
    ),
    Mutant(
        "inodes-not-compared", "guards", "others.py",
        "words = (most, share.least(saw, changed, shared=True))",
        "words = (share.least(saw, changed, shared=True),)",
        "tests/unit/test_guards.py::test_g19_holds_files_against_the_inodes_in_use",
        "a tool makes a hundred files on the target, and all others in memory",
        passes=True,
    ),
    Mutant(
        "slow-clock-believed", "guards", "clock.py",
        "words.append(SECONDS.least(saw, moving, exact=True))",
        "words.append(SECONDS.least(saw, moving - 12, exact=True))",
        "tests/unit/test_guards.py::test_g4_wants_seconds_that_the_job_confirms",
        "a tool whose clock is slow by ten seconds is believed",
        passes=True,
    ),
    Mutant(
        "slowest-below-ceiling", "guards", "figures.py",
        "value, unit = max(case.values[metric.name])",
        "value, unit = min(case.values[metric.name])",
        "tests/unit/test_guards.py::test_g6",
        "a sample above the ceiling counts if another one lies below",
        passes=True,
    ),
    Mutant(
        "longest-repetition", "guards", "figures.py",
        "    shortest = min(phase.seconds",
        "    shortest = max(phase.seconds",
        "tests/unit/test_judge.py::test_one_bad_repetition_is_enough",
        "a repetition that is too short counts if another one is long enough",
        passes=True,
    ),
    Mutant(
        "other-source", "guards", "preflight.py",
        "            or (declares.source is not None and mount.source != declares.source)\n",
        "",
        "tests/unit/test_guards.py::test_g9_objects",
        "another file system of the same type counts as the declared one",
        passes=True,
    ),
    Mutant(
        "disturber-ended-early", "guards", "others.py",
        "lead > 0 and after >= 0 and active >= _ACTIVE",
        "lead > 0 and active >= _ACTIVE",
        "tests/unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
        "a disturber that ended before the measurement counts",
        passes=True,
    ),
    Mutant(
        "disturber-began-late", "guards", "others.py",
        "lead > 0 and after >= 0 and active >= _ACTIVE",
        "after >= 0 and active >= _ACTIVE",
        "tests/unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
        "a disturber that began after the measurement counts",
        passes=True,
    ),
    Mutant(
        "disturber-asleep", "guards", "others.py",
        "lead > 0 and after >= 0 and active >= _ACTIVE",
        "lead > 0 and after >= 0",
        "tests/unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
        "a disturber that does nothing counts",
        passes=True,
    ),
    Mutant(
        "disturber-missing", "guards", "others.py",
        "    if missing := len(seen.outputs) - len(ran):",
        "    if missing := len(seen.outputs) * (not ran):",
        "tests/unit/test_guards.py::test_g19_wants_a_disturber_in_every_execution",
        "an execution without its disturber counts if another one had it",
        passes=True,
    ),
    Mutant(
        "disturber-lead-forgotten", "guards", "others.py",
        "took - d.lead_s - sum(",
        "took - sum(",
        "tests/unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
        "the time before the measurement makes a disturber look longer than it was",
        passes=True,
    ),
    Mutant(
        "drift-is-a-remark", "guards", "figures.py",
        "            otherwise = _of_tail(case, name)",
        "            otherwise = Outcome.WARN",
        "tests/unit/test_guards.py::test_g17_wants_the_same_before_and_after_a_disturbance",
        "a target that changed by itself passes as disturbed",
        passes=True,
    ),
    Mutant(
        "drift-of-itself", "guards", "figures.py",
        "for one in (before[way], name))",
        "for one in (name, name))",
        "tests/unit/test_guards.py::test_g17_wants_the_same_before_and_after_a_disturbance",
        "the measurement after a disturbance is compared with itself",
        passes=True,
    ),
    Mutant(
        "told-time", "guards", "clock.py",
        "{format_seconds(asked)}\", asked)",
        "{format_seconds(asked)}\", asked - 12)",
        "tests/unit/test_guards.py::test_g4_wants_no_fewer_seconds_than_the_tool_was_at_work",
        "fio ends sooner than it was told, and its rate counts",
        passes=True,
    ),
    Mutant(
        "told-time-of-the-disturber", "guards", "clock.py",
        "{format_seconds(timed)}\", timed, [word])",
        "{format_seconds(timed)}\", claimed, [word])",
        "tests/unit/test_guards.py::test_g4_wants_no_fewer_seconds_than_the_tool_was_at_work",
        "the disturber's long run confirms a measured load that ended too soon",
        passes=True,
    ),
    Mutant(
        "late-load", "guards", "others.py",
        "for by, lead_s in late if by >= lead_s",
        "for by, lead_s in late if False",
        "tests/unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
        "a load on other nodes begins when half of the measurement is over, and nobody is told",
    ),
    Mutant(
        "room-on-another-mdt", "job", "opening.py",
        "        return () if asked.target is None else (asked.target,)",
        "        return seen.mdts",
        "tests/unit/test_agent.py::test_the_metadata_target_that_gets_the_files_must_have_room",
        "a case fills a metadata target to its last inode, because it looked at another one",
    ),
    Mutant(
        "room-for-data-on-mdt", "job", "opening.py",
        "    if _with_metadata(order):",
        "    if False:",
        "tests/unit/test_agent.py::test_data_that_lie_with_their_metadata_need_room_there",
        "data on metadata targets fill them, and nobody can create a file any more",
    ),
    Mutant(
        "command-outlives-the-signal", "core", "processes.py",
        "        os.kill(pid, signal.SIGKILL)\n        # A process that waits for dead storage may never end, so it is not waited for.\n        os.waitpid(pid, os.WNOHANG)\n        return False",
        "        return os.waitpid(pid, 0)[1] == 0",
        "tests/unit/test_process.py::test_work_that_nobody_waits_for_is_ended",
        "a job at its time limit waits for the agent, is killed, and keeps the lock",
    ),
    Mutant(
        "ran-longer-than-said", "guards", "clock.py",
        "        words.append(work.least(saw, working, exact=True, often=True))",
        "        words.append(WORK.least(saw, 0.0, exact=True, often=True))",
        "tests/unit/test_guards.py::test_g4_knows_how_long_a_tool_worked",
        "a tool reports a third of the seconds for which it worked",
        passes=True,
    ),
    Mutant(
        "rate-x-latency", "guards", "figures.py",
        "if share > 1.1:",
        "if share > 11:",
        "tests/unit/test_guards.py::test_g7_wants_rate_and_latency_to_agree",
        "a rate counts that ten times the requests in flight would be needed for",
        passes=True,
    ),
    Mutant(
        "g7-busy-node", "guards", "figures.py",
        'latency = any(way.startswith("latency") for _, way in seen.phase.rates.values())',
        "latency = True",
        "tests/unit/test_guards.py::test_g7_wants_rate_and_latency_to_agree",
        "fio on a busy node is refused, though no latency is judged",
    ),
    Mutant(
        "g7-latency-free", "guards", "figures.py",
        'latency = any(way.startswith("latency") for _, way in seen.phase.rates.values())',
        "latency = False",
        "tests/unit/test_guards.py::test_g7_wants_rate_and_latency_to_agree",
        "a latency below a half of the true one passes",
        passes=True,
    ),
    Mutant(
        "g7-not-given", "guards", "figures.py",
        "if flight := in_flight(one.output):",
        "if flight := None:",
        "tests/unit/test_guards.py::test_g7_wants_rate_and_latency_to_agree",
        "rate and latency of fio are not compared",
        passes=True,
    ),
    Mutant(
        "files-elsewhere", "guards", "witness.py",
        "words.append(Bounds(saw, most=wrote / _INODE_BYTES))",
        "words.append(Bounds(saw, most=counted.written))",
        "tests/unit/test_guards.py::test_g9_wants_new_files_on_the_target",
        "files that were made elsewhere count if the devices wrote anything",
        passes=True,
    ),
    Mutant(
        "linked-tree", "job", "recorder.py",
        "                if entry.is_symlink():",
        "                if False:",
        "tests/unit/test_witness.py::test_a_link_is_no_file_of_a_case",
        "files behind a symbolic link count as files of the target",
        passes=True,
    ),
    Mutant(
        "hard-links", "job", "recorder.py",
        "                    if number not in numbers or entry.stat(follow_symlinks=False).st_nlink == 1:",
        "                    if True:",
        "tests/unit/test_witness.py::test_a_link_is_no_file_of_a_case",
        "hard links count as files",
        passes=True,
    ),
    Mutant(
        "number-tells-device", "node", "below.py",
        "        if not kind_of(mount.type).on_device:",
        "        if mount.device.startswith(\"0:\"):",
        "tests/unit/test_below.py::test_a_client_of_servers_has_no_block_device_below_whatever_its_number",
        "nothing is valid on Lustre, whose clients set a number that looks like a device's",
    ),
    Mutant(
        "witness-counts-itself", "job", "witness.sh",
        'echo "task $tool ${20}" 1<>"$agent"',
        'echo "task $$ ${20}" 1<>"$agent"',
        "tests/unit/test_witness.py::test_the_agent_is_told_the_process_of_the_tool_alone",
        "lctl, which the witness starts, counts as a process of fio",
    ),
    Mutant(
        "others-error-is-ours", "job", "witness.sh",
        '    [ -z "$directory" ] || sync -f -- "$directory" || echo "iogauge: the line',
        '    [ -z "$directory" ] || echo "iogauge: the line',
        "tests/unit/test_witness.py::test_an_old_error_of_the_mount_is_not_the_tools",
        "a stranger's write error ends a metadata case in ERROR",
    ),
    Mutant(
        "one-stripe-refused", "guards", "preflight.py",
        " or count == 1",
        "",
        "tests/unit/test_guards.py::test_g23_believes",
        "shared files on one storage target are refused for their stripes",
    ),
    Mutant(
        "busy-node-passes", "guards", "ledger.py",
        "                    Outcome.CONTAMINATED, f\"{saw}, while {busy}\"\n",
        "                    Outcome.OK, f\"{saw}, while {busy}\"\n",
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "a slow clock passes if the node is busy",
        passes=True,
    ),
    Mutant(
        "busy-excuses-everything", "guards", "ledger.py",
        "            if busy and not word.firm:\n",
        "            if busy:\n",
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "a tool that reports more seconds than it ran is excused by a busy node",
    ),
    Mutant(
        "fuse-is-exact", "guards", "witness.py",
        "if not (case.counters and case.kind.syncs) and most >= LEAST_FILES:",
        "if not case.counters and False:",
        "tests/unit/test_whole_cases.py::test_what_no_exact_witness_saw_has_a_remark",
        "files that a FUSE program keeps to itself pass without a remark",
    ),
    Mutant(
        "read-back-once", "guards", "contents.py",
        "doubt or all(read.blocks for _, read in pairs)",
        "doubt or any(read.blocks for _, read in pairs)",
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "blocks of one repetition stand for those of another, which was not read back",
        passes=True,
    ),
    Mutant(
        "journal-without-end", "node", "kinds.py",
        "_EXT: Final = replace(_LOCAL, frees=True, journal=2304)",
        "_EXT: Final = replace(_LOCAL, frees=True, journal=230400)",
        "tests/unit/test_whole_cases.py::test_an_untrue_case_never_passes_and_a_guard_names_why",
        "writes of others beside metadata are taken for the journal",
        passes=True,
    ),
    Mutant(
        "networks-confirm", "guards", "witness.py",
        '        words += _at_most(f"{_PASSAGES} moved", through)',
        '        words += _at_most(f"{_PASSAGES} moved", through, exact=True)',
        "tests/unit/test_guards.py::test_g8_lets_networks_and_disks_contradict_but_not_confirm",
        "MPI's own traffic counts as bytes that reached the storage",
        passes=True,
    ),
    Mutant(
        "left-out-targets", "guards", "preflight.py",
        "sum(sizes) - space.bytes_total > min(sizes) / 2",
        "sum(sizes) - space.bytes_total > sum(sizes)",
        "tests/unit/test_guards.py::test_g12_sees_targets_that_the_metadata_servers_leave_out",
        "a storage target that the metadata servers leave out is not seen",
    ),
    Mutant(
        "old-default-stays", "node", "lustre/lov.py",
        "        if wanted != own and wanted:",
        "        if wanted != own and not own:",
        "tests/unit/test_lov.py::test_a_directory_adopts_the_default_of_another",
        "a changed default layout reaches no file while an older directory stands",
    ),
    Mutant(
        "newcomer-first", "workspace", "lock.py",
        "        pause(2 * _LOOK_S)",
        "        pass",
        "tests/unit/test_lock.py::test_a_lock_is_dated_when_it_is_taken_and_one_that_waits_goes_first",
        "who takes the lock again and again keeps all others out",
    ),
    Mutant(
        "files-not-looked-at", "guards", "witness.py",
        'made.append(_files_claim(one, operations["create"]))',
        "made.append(_files_claim(one, 0))",
        "tests/unit/test_seen.py::test_files_of_each_execution_are_held_against_its_devices",
        "new files are not held against the bytes of the devices",
        passes=True,
    ),
    Mutant(
        "files-not-found", "guards", "witness.py",
        "words.append(Bounds(saw, most=found))",
        "words.append(Bounds(saw))",
        "tests/unit/test_guards.py::test_g9_wants_new_files_on_the_target",
        "files were made, and the case's directory holds none",
        passes=True,
    ),
    Mutant(
        "files-for-longer", "guards", "clock.py",
        "words.append(SECONDS.least(saw, making, exact=True))",
        "words.append(SECONDS.least(saw, making / 9, exact=True))",
        "tests/unit/test_guards.py::test_g4_wants_no_fewer_seconds_than_the_tool_was_at_work",
        "a tool makes files for three times as long as it reports",
        passes=True,
    ),
    Mutant(
        "others-not-seen", "evidence", "times.py",
        "    return abs(_changed(counts, span) - abs(own)) <= _ENDS * abs(own)",
        "    return _changed(counts, span) >= 0",
        "tests/unit/test_witness.py::test_the_seconds_of_files_are_known_if_nobody_else_makes_any",
        "files that others remove and make prolong the tool's own time: healthy cases are refused",
        passes=False,
    ),
    Mutant(
        "declared-out-is-in", "guards", "preflight.py",
        "    wrong = _names(set(out) - {t.index for t in targets} | set(out) & set(in_use))",
        "    wrong = _names(set(out) - {t.index for t in targets})",
        "tests/unit/test_guards.py::test_g12_refuses_another_state_than_the_declared_one",
        "figures of a degraded file system are taken while it is whole",
        passes=True,
    ),
    Mutant(
        "out-excuses-others", "guards", "preflight.py",
        "for target in left if not target.active)\n",
        "for target in left if not target.active and not out)\n",
        "tests/unit/test_guards.py::test_g12_refuses_another_state_than_the_declared_one",
        "a storage target is out beside the one that is declared out",
        passes=True,
    ),
    Mutant(
        "out-not-asked-again", "guards", "preflight.py",
        "        out=topology.out if topology else (),\n",
        "",
        "tests/unit/test_judge.py::test_storage_targets_are_out_as_declared_when_the_case_is_judged",
        "the verdict does not know which storage targets are declared out",
    ),
    Mutant(
        "io500-phase-bytes", "guards", "within.py",
        "[BYTES.most(saw, counted / of_each)]",
        "[BYTES.most(saw, 2 * counted / of_each)]",
        "tests/unit/test_within.py::test_bytes_of_a_phase",
        "a phase of IO500 counts of which half came from a cache",
        passes=True,
    ),
    Mutant(
        "io500-phase-copies", "guards", "within.py",
        '("wrote", seen.case.copies[0]) if writes',
        '("wrote", 1.0) if writes',
        "tests/unit/test_within.py::test_bytes_of_a_phase",
        "a mirrored file system wrote one copy while a phase of IO500 ran",
        passes=True,
    ),
    Mutant(
        "io500-phase-unseen", "guards", "within.py",
        "if finding.saw == fine and len(counts) < len(parts):",
        "if finding.saw == fine and not counts and parts and parts[0]:",
        "tests/unit/test_within.py::test_a_repetition_that_nobody_counted_has_a_remark",
        "a repetition of IO500 that nobody counted goes without a remark",
    ),
    Mutant(
        "io500-phase-seconds", "guards", "within.py",
        "seconds_claims(claimed, moving=moving)",
        "seconds_claims(claimed, moving=moving / 2)",
        "tests/unit/test_within.py::test_seconds_of_a_phase",
        "a phase of IO500 reports half of its seconds",
        passes=True,
    ),
    Mutant(
        "io500-phase-span", "guards", "within.py",
        "    end = min(ended + 1, begun + 1 + length) - clock.least\n    return (begin, end) if",
        "    end = ended + 3600\n    return (begin, end) if True or",
        "tests/unit/test_within.py::test_bytes_that_moved_in_another_phase_prove_nothing",
        "the bytes of other phases prove those of a phase of IO500",
        passes=True,
    ),
    # job
    Mutant(
        "refusals-not-heard", "job", "opening.py",
        "    return tuple(str(f) for f in findings if f.outcome is finding.Outcome.INVALID)",
        "    return tuple(str(f) for f in findings if f.outcome is finding.Outcome.UNSTABLE)",
        "tests/unit/test_agent.py::test_a_target_that_will_not_do_is_refused",
        "a case writes to a full target, or to another file system than declared",
    ),
    Mutant(
        "lost-lock-not-told", "job", "opening.py",
        '    note(LOST, lost)',
        '    note(LOST, "")',
        "tests/unit/test_job_lock.py::test_a_keeper_that_was_stopped_says_that_the_lock_was_lost",
        "a case that lost the lock of its target says that it had it",
        passes=True,
    ),
    Mutant(
        "phase-goes-on", "job", "job.sh",
        '    if [ "$status" -ne 0 ]; then',
        '    if [ "$status" -gt 128 ]; then',
        "tests/unit/test_job_script.py::test_a_phase_that_fails_ends_the_job_with_its_status",
        "the job goes on after a phase that failed",
    ),
    Mutant(
        "status-not-written", "job", "job.sh",
        '"$IOG_REP" "$name" "$status" "$started"',
        '"$IOG_REP" "$name" 0 "$started"',
        "tests/unit/test_job_script.py::test_a_tool_that_is_killed_ends_the_job_as_killed",
        "`phases.tsv` says that a tool that was killed ended well",
    ),
    Mutant(
        "short-phase-not-timed", "job", "recorder.py",
        "            return FIRST_S\n",
        "            return CLOSE_S\n",
        "tests/unit/test_witness.py::test_a_short_phase_has_enough_looks",
        "a tool whose clock goes at a third of its speed is believed in short phases",
        passes=True,
    ),
    Mutant(
        "mounts-not-looked-at", "job", "recorder.py",
        "    return mount.device != own.device and (mount.type, mount.source) != (own.type, own.source)",
        "    return mount.device == own.device and (mount.type, mount.source) != (own.type, own.source)",
        "tests/unit/test_witness.py::test_the_recorder_sees_what_hides_the_directory_from_the_tool",
        "memory lies over the case's directory while files are made, and they count as the target's",
        passes=True,
    ),
    Mutant(
        "own-bytes-not-timed", "evidence", "times.py",
        "    seconds = _seconds_of(mine, span, mine[-1][1] - STARTING_BYTES, rests=phases - 1)",
        "    seconds = _seconds_of(mine, span, mine[-1][1] // 2, rests=phases - 1)",
        "tests/unit/test_witness.py::test_a_task_passes_its_bytes_to_the_kernel_for_so_long",
        "on a file system that no device counts for, a slow clock is believed",
        passes=True,
    ),
    Mutant(
        "mpi-files-are-data", "evidence", "times.py",
        "    return _seconds_of(counts, span, min(own_bytes, told_bytes))",
        "    return _seconds_of(counts, span, own_bytes)",
        "tests/unit/test_witness.py::test_files_that_an_mpi_writes_to_the_target_are_no_time_of_the_tool",
        "a valid write is refused: its MPI had files on the target before the tool began",
    ),
    Mutant(
        "rest-is-work", "evidence", "times.py",
        "        if idle and sum(seconds for seconds, _ in steps[at : at + length]) >= _REST_S:",
        "        if False:",
        "tests/unit/test_witness.py::test_a_rest_between_two_phases_is_no_asking",
        "a healthy tool that rests between its phases is refused for a wrong clock",
    ),
    Mutant(
        "start-is-work", "evidence", "times.py",
        "        if span[0] <= time <= span[1] and count == _WITHOUT_JOBS + jobs",
        "        if span[0] <= time <= span[1]",
        "tests/unit/test_witness.py::test_the_jobs_of_fio_live_for_so_long",
        "fio is refused for the seconds of its start",
    ),
    Mutant(
        "iops-not-compared", "tools", "ior/output.py",
        "    if moved is not None and not _is_product(iops, transfers_s, count):",
        "    if moved is None and not _is_product(iops, transfers_s, count):",
        "tests/unit/tools/test_ior.py::test_damage_by_hand",
        "operations per second of IOR that are five times too many",
        passes=True,
    ),
    Mutant(
        "rate-beside-its-time", "tools", "mdtest.py",
        "    elif not fitting and certain:",
        "    elif not fitting and not certain:",
        "tests/unit/tools/test_mdtest.py::test_a_rate_that_its_time_contradicts_is_refused",
        "a rate of mdtest that is three times what its time allows",
        passes=True,
    ),
    Mutant(
        "files-not-asked-for", "tools", "fio/output.py",
        "    if phase.operations != files:",
        "    if phase.operations < files:",
        "tests/unit/tools/test_fio.py::test_a_count_of_files_that_nobody_asked_for_is_refused",
        "fio reports three times as many files as it was asked for",
        passes=True,
    ),
    Mutant(
        "longest-task-not-asked", "iogauge_extras/suites", "md_workbench.py",
        "    if abs(total_s - longest_s) > _HUNDREDTH_S + _ROUNDED / rate * total_s:",
        "    if abs(total_s - longest_s) > 1e9:",
        "tests/unit/tools/test_mdworkbench.py::test_what_is_no_whole_run_is_refused",
        "a rate of md-workbench that its own seconds contradict",
        passes=True,
    ),
    Mutant(
        "files-in-a-program", "guards", "witness.py",
        "and most >= LEAST_FILES:",
        "and most < 0:",
        "tests/unit/test_whole_cases.py::test_what_no_exact_witness_saw_has_a_remark",
        "files in the memory of a FUSE program pass without a remark",
        passes=True,
    ),
    Mutant(
        "memory-behind-a-program", "node", "below.py",
        '        elif mount.type.startswith("fuse"):',
        '        elif mount.type.startswith("fuse/"):',
        "tests/unit/test_below.py::test_what_a_program_shows_elsewhere_may_be_memory",
        "a directory in memory that bindfs shows elsewhere is storage",
        passes=True,
    ),
    Mutant(
        "work-without-a-witness", "guards", "clock.py",
        'unseen="" if seen.phase.pauses else',
        'unseen="" if not seen.phase.pauses else',
        "tests/unit/test_seen.py::test_how_long_a_tool_worked",
        "seconds that only the run time bounds pass without a remark",
    ),
    Mutant(
        "credit-for-data", "node", "kinds.py",
        "journal=16384, beside=0.5",
        "journal=16384, beside=9.0",
        "tests/unit/test_seen.py::test_how_much_a_file_system_may_write_beside_an_operation",
        "others write four times as much as a case of small writes on btrfs",
        passes=True,
    ),
    Mutant(
        "holes-below-a-device", "guards", "witness.py",
        "    words += _at_most(who, moved.read if moved else None)",
        "    words += _at_most(who, None)",
        "tests/unit/test_seen.py::test_g8_asks_the_disks_below_devices_that_are_read",
        "a loop device over a file with holes is measured as a disk",
        passes=True,
    ),
    Mutant(
        "server-with-a-past", "job", "recorder.py",
        "        self._asked_before, self._asked_most = asked_by(self._task_tree(_MANY_PROCESSES)), (0, 0)",
        "        self._asked_before, self._asked_most = (0, 0), (0, 0)",
        "tests/unit/test_witness.py::test_of_a_server_only_what_it_does_in_the_phase_counts",
        "bytes of earlier phases time a server's phase",
    ),
    Mutant(
        "jobs-not-counted", "guards", "origin.py",
        "        if tasks and jobs > tasks:",
        "        if tasks and jobs > 9 * tasks:",
        "tests/unit/test_seen.py::test_g22_counts_the_jobs_of_fio",
        "fio runs four times as many jobs as its options say",
        passes=True,
    ),
    Mutant(
        "declared-not-compared", "cli", "doctor.py",
        "    if view.below.compresses and target.compresses is False:",
        "    if view.below.compresses and target.compresses is None:",
        "tests/unit/test_doctor.py::test_what_a_site_declares_is_compared_with_what_this_host_sees",
        "the doctor does not say that a site denies compression",
    ),
    Mutant(
        "output-not-watched", "job", "recorder.py",
        '            self._printed.note(now, size)',
        '            self._printed.note(now, 0)',
        "tests/unit/test_witness.py::test_the_recorder_says_when_a_tool_printed",
        "on a network, the slow clock of mdtest is believed",
        passes=True,
    ),
    Mutant(
        "sync-counts-twice", "evidence", "witness.py",
        "        if phase.name not in measured:",
        "        if False:",
        "tests/unit/test_witness.py::test_a_sync_belongs_to_the_time_of_what_it_follows",
        "healthy mdtest is refused on a disk that needs seconds for its sync",
    ),
    Mutant(
        "libraries-not-noted", "job", "recorder.py",
        "        if self._looks_at_task in _LIBRARIES_AT:",
        "        if self._looks_at_task in ():",
        "tests/unit/test_witness.py::test_the_recorder_names_what_the_task_has_loaded",
        "a program under the tool's name preloads a library that swallows fsync",
        passes=True,
    ),
    Mutant(
        "mount-in-the-directory", "job", "recorder.py",
        " or m.point.startswith(inside)",
        "",
        "tests/unit/test_witness.py::test_the_recorder_sees_what_hides_the_directory_from_the_tool",
        "a memory is mounted in the case's directory, and its files are those of the target",
        passes=True,
    ),
    Mutant(
        "flush-ends-halfway", "node", "below.py",
        "        if not below.fsync and (reason := self.keeps_flushes(disk, directory, below)):\n",
        "        if False and (reason := \"\"):\n",
        "tests/unit/test_below.py::test_a_device_that_hands_no_flush_on_proves_no_fsync",
        "fsync ends at a device that hands no flush on to the disk",
        passes=True,
    ),
    Mutant(
        "calls-not-counted", "guards", "witness.py",
        "    if operations and testimony.calls.read > 0 and posix and asks:",
        "    if False:",
        "tests/unit/test_guards.py::test_g8_wants_a_call_for_each_operation",
        "a library gathers small transfers, and the operations per second are those of large ones",
        passes=True,
    ),
    Mutant(
        "memory-of-a-client", "guards", "witness.py",
        '        words += _at_most(f"{_PASSAGES} moved", through)\n',
        "",
        "tests/unit/test_seen.py::test_what_carried_the_writes_may_contradict_reads_and_confirms_none",
        "a client of FUSE or GPFS reads from its own memory",
        passes=True,
    ),
    Mutant(
        "others-carry-it", "guards", "witness.py",
        "[name for name in single if max(shares(name)) <= 1 + BYTES.share] or single or carried",
        "single or carried",
        "tests/unit/test_seen.py::test_what_carried_the_writes_may_contradict_reads_and_confirms_none",
        "a client reads from its own memory while others use a disk of the node",
        passes=True,
    ),
    Mutant(
        "raid-counts-twice", "node", "below.py",
        "        if not _beneath(directory) and not",
        "        if not",
        "tests/unit/test_below.py::test_bytes_leave_a_node_by_devices_that_lie_over_no_other_and_are_storage",
        "a FUSE over a software RAID reads half of its data from memory",
        passes=True,
    ),
    Mutant(
        "layout-unheard", "evidence", "collect.py",
        "for p in plan.phases if p.witnessed}",
        "for p in plan.repeat if p.witnessed}",
        "tests/e2e/test_witness.py::test_direct_reads_from_the_memory_of_a_daemon",
        "fio reads from a client's memory what its layout has written",
        passes=True,
    ),
    Mutant(
        "bridge-counts-twice", "node", "counters.py",
        'or any(place.glob("lower_*")):',
        'or False:',
        "tests/unit/test_witness.py::test_an_interface_over_others_counts_nothing_twice",
        "half of what a tool claims is enough on a node with a bond",
        passes=True,
    ),
    Mutant(
        "port-counts-twice", "node", "counters.py",
        'if not (by_port and text(place / "type").strip() == "32"):',
        'if True:',
        "tests/unit/test_witness.py::test_ports_of_infiniband_count_for_their_interfaces",
        "IP over InfiniBand hides bytes that a client did not move",
        passes=True,
    ),
    Mutant(
        "small-files-have-no-bytes", "cases", "mdtest.py",
        "if self.random_reads else counted\n",
        "if self.random_reads else read\n",
        "tests/e2e/test_witness.py::test_small_files_that_come_from_a_cache",
        "mdtest reads its files from a cache that nobody emptied",
        passes=True,
    ),
    Mutant(
        "disturber-has-no-metadata", "guards", "witness.py",
        "return beside if seen.access.o_direct else beside",
        "return 0 if seen.access.o_direct else beside",
        "tests/unit/test_seen.py::test_g8_knows_the_metadata_of_a_disturber",
        "a stream with O_DIRECT is refused for the metadata of its disturber on btrfs",
    ),
    Mutant(
        "one-clock-of-all-servers", "guards", "clock.py",
        "    if len(hosts) > 1 and not one.testimony.of_tasks:\n",
        "    if False:\n",
        "tests/unit/test_seen.py::test_servers_of_several_hosts_start_their_clocks_apart",
        "fio on several hosts of one kernel is refused, because its servers do not start at the same time",
    ),
    Mutant(
        "credit-for-reads", "guards", "others.py",
        '_WRITES_NOTHING: Final = {"read", "stat"}',
        '_WRITES_NOTHING: Final = {"none"}',
        "tests/unit/test_seen.py::test_g19_gives_no_credit_for_what_only_reads",
        "others write as much as a case reads",
        passes=True,
    ),
    Mutant(
        "children-not-killed", "job", "background.sh",
        'found="$found${pair%:*} " more=1 new=1',
        ":",
        "tests/unit/test_background.py::test_a_program_that_hangs_in_its_handler_is_killed_with_its_children",
        "an fio that hangs is killed, its jobs wait for ever, and the target stays locked",
    ),
    Mutant(
        "last-look-lost", "job", "recorder.py",
        "        self._processes.settle()\n",
        "",
        "tests/unit/test_witness.py::test_a_quiet_time_ends_at_its_last_look",
        "nobody knows for how long fio's jobs ran, and a slow clock passes for metadata on networks",
    ),
    Mutant(
        "executions-run-together", "evidence", "times.py",
        "        if count < mine[-1][1]:",
        "        if count < 0:",
        "tests/unit/test_witness.py::test_what_a_task_asked_for_before_and_after_is_not_of_this_execution",
        "a slow clock passes on networks if a phase takes more than two seconds",
    ),
    Mutant(
        "first-node-by-name", "evidence", "model.py",
        "if self.opened is None:",
        "if True:",
        "tests/unit/test_seen.py::test_the_first_node_is_the_node_of_the_job_script",
        "on several nodes, what one node saw is compared with the seconds since boot of another",
    ),
    Mutant(
        "lost-witness-is-silent", "guards", "ledger.py",
        "    if lost := sum(claims is None for claims in executions):",
        "    if lost := sum(claims is None for claims in executions) * 0:",
        "tests/unit/test_guards.py::test_g4_remarks_an_execution_that_nobody_saw",
        "a launcher that changes standard error takes the witness away, and figures of metadata pass without a remark",
    ),
    Mutant(
        "silent-device-speaks", "guards", "seen.py",
        "return frozenset(name for name, kind in kinds.items() if kind not in count)",
        "return frozenset()",
        "tests/unit/test_seen.py::test_a_device_that_the_kernel_says_it_does_not_count",
        "a device that counts nothing refuses each case of its target",
    ),
    Mutant(
        "moving-device-is-silent", "guards", "seen.py",
        "return frozenset(name for name, kind in kinds.items() if kind not in count)",
        "return frozenset(kinds)",
        "tests/unit/test_seen.py::test_a_device_that_the_kernel_says_it_does_not_count",
        "LVM on an older kernel is no witness, and bytes that are missing are not found",
    ),
    Mutant(
        "signal-waits-for-the-agent", "job", "job.sh",
        'else iog_run iog_listen "$@"; fi',
        'else iog_listen "$@"; fi',
        "tests/unit/test_background.py::test_a_signal_just_before_the_script_waits_for_its_agent",
        "a signal that comes just before the script waits for its agent is lost until the agent says a word",
    ),
    Mutant(
        "witness-hides-status", "job", "witness.sh",
        '    wait "$tool" || exit\n',
        '    wait "$tool" || exit 0\n',
        "tests/unit/test_background.py::test_a_witness_keeps_the_status",
        "a tool that fails under `witness.sh` ended well",
        passes=True,
    ),
    Mutant(
        "rounds-go-on", "job", "rounds.sh",
        'turn >>"$job.turns" || exit',
        'turn >>"$job.turns"',
        "tests/unit/test_needle.py::test_the_first_failure_ends_it",
        "a needle goes on after a turn that failed",
    ),
    Mutant(
        "filled-beyond", "iogauge_extras/loads", "filling.py",
        "    if missing > most_bytes:",
        "    if missing > 2 * space.bytes_total:",
        "tests/unit/test_filling.py::test_nothing_is_made_if_the_level_cannot_be",
        "FillLevel takes more space than the site allows",
    ),
    Mutant(
        "filled-no-room", "iogauge_extras/loads", "filling.py",
        "    if remaining < 1.2 * need_bytes:",
        "    if remaining < need_bytes:",
        "tests/unit/test_filling.py::test_nothing_is_made_if_the_level_cannot_be",
        "FillLevel leaves no room for its own case",
    ),
    Mutant(
        "filled-with-nothing", "iogauge_extras/loads", "filling.py",
        "        if stored < _STORED * size:",
        "        if stored < 0:",
        "tests/unit/test_filling.py::test_a_file_without_blocks_fills_nothing",
        "a target that stores no zeros counts as full",
        passes=True,
    ),
    Mutant(
        "too-full-already", "iogauge_extras/loads", "filling.py",
        "    if missing < -space.bytes_total // 100:",
        "    if missing < -space.bytes_total:",
        "tests/unit/test_filling.py::test_nothing_is_made_if_the_level_cannot_be",
        "a figure at one level of fill stands for another",
        passes=True,
    ),
    # judge
    Mutant(
        "met-unexpectedly", "judge", "verdict.py",
        '                Verdict.FAIL, f"{text}: met unexpectedly',
        '                Verdict.PASS, f"{text}: met unexpectedly',
        "tests/unit/test_verdict.py::test_an_expected_failure_that_does_not_happen_is_one_that_counts",
        "a value that an `$xfail` says is broken passes when it meets its reference",
        passes=True,
    ),
    Mutant(
        "xfail-for-ever", "judge", "verdict.py",
        "        reference = replace(reference, xfail=None, until=None)",
        "        reference = replace(reference, until=None)",
        "tests/unit/test_verdict.py::test_after_the_last_day_a_failure_is_one_like_any_other_and_says_so",
        "a failure is expected after the last day of its `$xfail`",
    ),
    Mutant(
        "xfail-of-another-metric", "judge", "case.py",
        "            and all(m.failed_as_expected for m in failed)",
        "            and any(m.failed_as_expected for m in failed)",
        "tests/unit/test_judge.py::test_expected_failures_of_a_case",
        "the expected failure of one metric hides the failure of another",
    ),
    Mutant(
        "findings-of-the-case", "judge", "verdict.py",
        "    applicable = [f for f in findings if f.metric in (None, metric.name)]",
        "    applicable = [f for f in findings if f.metric == metric.name]",
        "tests/unit/test_judge.py::test_a_site_that_contradicts_the_measurement_makes_it_invalid",
        "findings about the whole case are dropped",
        passes=True,
    ),
    Mutant(
        "findings-of-sources", "judge", "case.py",
        "        of_metric[name] = [finding for source in computed.sources for finding in of_metric[source]]",
        "        of_metric[name] = []",
        "tests/unit/test_judge.py::test_what_is_computed_of_two_metrics_is_judged_like_them",
        "a computed metric is believed though its sources are not",
        passes=True,
    ),
    Mutant(
        "samples-not-counted", "judge", "verdict.py",
        "        if len(values) != repetitions:",
        "        if not values:",
        "tests/unit/test_verdict.py::test_samples_that_prove_nothing_are_refused",
        "a repetition without a value goes unnoticed",
        passes=True,
    ),
    Mutant(
        "unit-not-compared", "judge", "verdict.py",
        "            if quantity.unit != metric.unit:",
        "            if not quantity.unit:",
        "tests/unit/test_verdict.py::test_samples_that_prove_nothing_are_refused",
        "a sample in KiB/s is compared with a reference in MiB/s",
        passes=True,
    ),
    Mutant(
        "best-verdict", "judge", "verdict.py",
        "    return max(verdicts, key=lambda v: v.rank, default=Verdict.ERROR)",
        "    return min(verdicts, key=lambda v: v.rank, default=Verdict.ERROR)",
        "tests/unit/test_verdict.py::test_the_worst_verdict_is_the_case_s",
        "one metric that passes makes the case pass",
        passes=True,
    ),
    Mutant(
        "nothing-to-compare", "judge", "verdict.py",
        "            Verdict.UNREFERENCED, unreferenced or",
        "            Verdict.PASS, unreferenced or",
        "tests/unit/test_judge.py::test_without_a_reference_nothing_passes",
        "a metric without a reference passes",
        passes=True,
    ),
    Mutant(
        "fastest-probe", "iogauge_extras/needle", "judge.py",
        "    probes.sort(key=lambda probe: (probe.share, probe.name))",
        "    probes.sort(key=lambda probe: (-probe.share, probe.name))",
        "tests/unit/test_needle.py::test_what_holds_of_every_needle",
        "a needle judges the fastest storage target in place of the slowest",
        passes=True,
    ),
    Mutant(
        "unproven-is-slow", "iogauge_extras/needle", "judge.py",
        "return self.t is not None and self.t < self.limit",
        "return self.t is not None",
        "tests/unit/test_needle.py::test_turns_that_differ_too_much_prove_nothing",
        "a needle names a storage target whose turns prove nothing",
    ),
    Mutant(
        "undecided-passes", "judge", "verdict.py",
        "        return verdict(Verdict.UNSTABLE, f\"{text}: {unsettled.why}\")",
        "        return verdict(Verdict.PASS, f\"{text}: {unsettled.why}\")",
        "tests/unit/test_verdict.py::test_a_value_that_the_turns_leave_open_is_unstable",
        "a storage target that seems slow passes if its turns prove nothing",
        passes=True,
    ),
    Mutant(
        "same-order", "iogauge_extras/needle", "turns.py",
        "            found += [first, first[::-1]][:left]",
        "            found += [first, first][:left]",
        "tests/unit/test_needle.py::test_no_probe_has_the_late_places",
        "a drift within the rounds hits the same storage target each time",
    ),
    Mutant(
        "drift-counts", "iogauge_extras/needle", "turns.py",
        "    middle = [_middle(column) for column in zip(*rates.values(), strict=True)]",
        "    middle = [1.0 for column in zip(*rates.values(), strict=True)]",
        "tests/unit/test_needle.py::test_drift_that_all_share_is_no_difference",
        "a drift that all storage targets share makes one of them slow",
    ),
    # node
    Mutant(
        "barriers-not-asked", "node", "mounts.py",
        'return option(mount, "nobarrier|barrier=0|fsync_mode=nobarrier")',
        'return option(mount, "barrier=0|fsync_mode=nobarrier")',
        "tests/unit/test_below.py::test_fsync_without_barriers_proves_nothing",
        "writes count as stored that lie in the write cache of a disk",
        passes=True,
    ),
    Mutant(
        "no-file-is-empty", "node", "files.py",
        "        return not self.problem and self.resident_after == 0 and self.files > 0",
        "        return not self.problem and self.resident_after == 0",
        "tests/unit/test_pagecache.py::test_what_proves_a_cache_empty",
        "a page cache counts as emptied where no file was found",
        passes=True,
    ),
    Mutant(
        "inactive-target", "node", "lustre/targets.py",
        "replace(target, active=active and target.active, server",
        "replace(target, active=target.active, server",
        "tests/unit/test_lustre.py::test_a_target_is_inactive_if_the_client_or_its_server_says_so",
        "a storage target that the client calls inactive counts as active",
    ),
    Mutant(
        "external-journal", "node", "below.py",
        "        numbers = [mount.device, *self.journals(mount)]",
        "        numbers = [mount.device]",
        "tests/unit/test_below_real.py::test_a_journal_on_a_device_of_its_own_is_a_part_of_the_storage",
        "what ext4 writes into a journal on another device is not counted",
    ),
    Mutant(
        "data-journal", "node", "below.py",
        '        if "data=journal" in options:',
        '        if "data=journalled" in options:',
        "tests/unit/test_below_real.py::test_o_direct_that_reads_from_the_page_cache_is_named",
        "data that go through a journal count as written in place",
    ),
    # plan
    Mutant(
        "run-twice", "plan", "stage.py",
        "        if (run.repetition, run.name) in runs:",
        "        if run in runs.values():",
        "tests/unit/test_evidence.py::test_a_phase_that_ran_twice_is_an_error",
        "the second line of a phase in `phases.tsv` replaces the first",
    ),
    Mutant(
        "cache-not-emptied", "plan", "script.py",
        '        lines.append(_step(f"evict-{phase.name}", words))',
        '        lines += [_step(f"evict-{phase.name}", words)][1:]',
        "tests/unit/test_plan.py::test_a_case_of_one_node",
        "the job script does not empty the page cache before a read",
    ),
    Mutant(
        "no-warm-up", "plan", "case.py",
        "        return 0 if self.warm_up else 1",
        "        return 1",
        "tests/unit/test_evidence.py::test_a_phase_that_never_ran_is_named",
        "cases run without their warm-up",
    ),
    Mutant(
        "budget-of-each-case", "plan", "bounds.py",
        "            self.node_seconds + other.node_seconds,",
        "            max(self.node_seconds, other.node_seconds),",
        "tests/unit/test_budget.py::test_a_session_spends_until_a_case_would_be_too_much",
        "a session may cost more than the site's budget, case by case",
    ),
    # records
    Mutant(
        "record-not-on-disk", "records", "journal.py",
        "            os.fsync(fd)\n",
        "",
        "tests/unit/test_history.py::test_a_record_is_on_disk_when_append_returns",
        "the record of a decided case is lost with the machine",
    ),
    Mutant(
        "series-merge", "records", "record.py",
        "    return digest([line, dict(subset)])",
        "    return digest([line])",
        "tests/unit/test_history.py::test_without_keys_tools_and_stack_make_the_series",
        "runs with another stack go on in the old series",
    ),
    Mutant(
        "derived-from-unstable", "iogauge_extras/derived", "derive.py",
        "    if not verdict.is_valid:",
        "    if verdict.fails_run:",
        "tests/unit/test_derive.py::test_a_point_that_is_not_valid_is_named_with_its_verdict",
        "an UNSTABLE measurement is an operand of a derived one",
    ),
    Mutant(
        "old-ceiling", "iogauge_extras/ceilings", "measured.py",
        "        fresh = [figure for figure in figures if microseconds(figure.time) >= oldest]",
        "        fresh = figures",
        "tests/unit/test_ceilings.py::test_what_is_too_old_is_named_and_not_used",
        "a ceiling that was measured long ago bounds a figure",
    ),
    Mutant(
        "ceiling-contradicted", "iogauge_extras/ceilings", "measured.py",
        "figure.bytes_s > MOST_SHARE * limit.value",
        "figure.bytes_s > 10 * limit.value",
        "tests/unit/test_ceilings.py::test_a_valid_figure_above_it_contradicts_it",
        "a measured ceiling stands though valid figures exceed it",
    ),
    # report
    Mutant(
        "one-pass-opens-the-gate", "report", "endings.py",
        "    trouble = any(n and verdict.is_trouble(gate) for verdict, n in counts.items())",
        "    trouble = all(n and verdict.is_trouble(gate) for verdict, n in counts.items())",
        "tests/unit/test_report.py::test_the_worst_case_decides",
        "one case that passes opens the gate",
        passes=True,
    ),
    Mutant(
        "unproven-is-ok", "report", "endings.py",
        "    elif not passed:",
        "    elif not passed and not counts:",
        "tests/unit/test_ending.py::test_without_a_pass_the_word_is_never_ok",
        "a session of UNREFERENCED cases ends with ok",
        passes=True,
    ),
    Mutant(
        "left-out-is-ok", "report", "endings.py",
        "    elif unproven or lack.left_out or absent:",
        "    elif unproven or absent:",
        "tests/unit/test_ending.py::test_ok_leaves_nothing_unproven",
        "a session ends with ok though a missing tool kept cases from running",
        passes=True,
    ),
    Mutant(
        "junit-calls-it-passed", "report", "export.py",
        "        if record.verdict is not Verdict.PASS:",
        "        if record.verdict.fails_run:",
        "tests/unit/test_alarm.py::test_junit_calls_nothing_but_pass_a_pass",
        "GitLab shows an UNSTABLE case as passed",
        passes=True,
    ),
    Mutant(
        "contradicted-layer-carries", "iogauge_extras/ceilings", "table.py",
        "        usable = measured if layer and not layer.problem else None",
        "        usable = measured",
        "tests/unit/test_ceilings.py::test_a_contradicted_measurement_carries_nothing",
        "the layers of the report rest on a measurement that is contradicted",
    ),
    Mutant(
        "layer-forgets-those-below", "iogauge_extras/ceilings", "table.py",
        "            carries = _least((below, declared, usable))",
        "            carries = _least((declared, usable))",
        "tests/unit/test_ceilings.py::test_a_contradicted_measurement_carries_nothing",
        "a layer carries more than those below it",
    ),
    Mutant(
        "contradicted-beside", "iogauge_extras/ceilings", "table.py",
        "_least(row.usable for row in rows)",
        "_least(row.measured for row in rows)",
        "tests/unit/test_ceilings.py::test_a_contradicted_measurement_is_no_ceiling_beside_a_metric",
        "a metric stands beside a ceiling that is contradicted",
    ),
    Mutant(
        "prometheus-of-invalid", "report", "export.py",
        "    measured = (metric.median, metric.spread) if metric.verdict.is_valid else (None, None)\n",
        "    measured = (metric.median, metric.spread)\n",
        "tests/unit/test_export.py::test_what_is_not_valid_is_no_measurement",
        "Prometheus gets values of INVALID runs",
    ),
    Mutant(
        "prometheus-verdict-of-case", "report", "export.py",
        "given.set(verdict is metric.verdict)",
        "given.set(verdict is record.verdict)",
        "tests/unit/test_export.py::test_each_metric_has_its_own_verdict",
        "Prometheus gets the case's verdict for each of its metrics",
    ),
    Mutant(
        "export-all-rows", "report", "export.py",
        'how="semi"',
        'how="left"',
        "tests/unit/test_export.py::test_parquet_has_the_documented_columns_and_the_site",
        "an export holds rows that were not chosen, or lacks columns",
    ),
    # session
    Mutant(
        "gate-by-mistake", "session", "current.py",
        '    raise SystemExit(f"iogauge: IOGAUGE_GATE is {value!r}: expected 1 or 0")',
        "    return False",
        "tests/e2e/test_never_pass.py::test_a_gate_that_is_neither_open_nor_shut",
        "a misspelt `IOGAUGE_GATE` opens the gate",
    ),
    Mutant(
        "gate-without-a-case", "session", "current.py",
        "        if session.failed or not session.passed:",
        "        if session.failed:",
        "tests/unit/test_session.py::test_a_gate_that_decides_nothing_fails",
        "a gate that measured nothing ends with 0",
        passes=True,
    ),
    Mutant(
        "janitor-of-the-living", "session", "current.py",
        "                if self.everything or not directory.may_be_alive(session):",
        "                if session.path:",
        "tests/e2e/test_safety.py::test_an_expired_session_of_another_host_is_removed_and_a_fresh_one_kept",
        "`iogauge clean` removes the directory of a session that runs",
    ),
    # site
    Mutant(
        "reference-of-something-else", "site", "references.py",
        "        if foreign:\n",
        "        if False:\n",
        "tests/unit/test_references.py::test_what_a_run_sets_otherwise_has_no_reference",
        "a run at another scale is compared with the site's references",
        passes=True,
    ),
    Mutant(
        "largest-part", "site", "topology.py",
        "        return min(parts, key=lambda part: part.value, default=None)",
        "        return max(parts, key=lambda part: part.value, default=None)",
        "tests/unit/test_topology.py::test_the_smallest_part_sets_the_ceiling",
        "the ceiling is that of the fastest part of the way to the storage",
        passes=True,
    ),
    # tools
    Mutant(
        "fio-failed", "tools", "fio/output.py",
        "    if error != 0 or isinstance(error, bool):",
        "    if isinstance(error, bool):",
        "tests/unit/tools/test_fio.py::test_damaged_output",
        "the rates of a job of fio that failed count",
        passes=True,
    ),
    Mutant(
        "fio-lost-a-process", "tools", "fio/output.py",
        "    if lost := _LOST.search(around):",
        "    if lost := _LOST.search(\"\"):",
        "tests/unit/tools/test_fio.py::test_a_process_that_was_lost_leaves_no_result",
        "the rates of a job of which fio lost a process count",
        passes=True,
    ),
    Mutant(
        "ior-complained", "tools", "ior/output.py",
        "        warnings=unique(COMPLAINT.findall(own)),",
        "        warnings=(),",
        "tests/unit/tools/test_ior.py::test_corrupt_data_is_a_warning_of_the_log",
        "IOR found corrupt data, and its warning is dropped",
        passes=True,
    ),
    Mutant(
        "elbencho-rates-disagree", "iogauge_extras/suites", "elbencho.py",
        "    if abs(seconds - shown_ms / 1000) > _ROUNDING_S + seconds / 100:",
        "    if seconds < 0:",
        "tests/unit/tools/test_elbencho.py::test_what_is_no_whole_phase_is_refused",
        "elbencho's bytes, rate and seconds contradict each other",
        passes=True,
    ),
    Mutant(
        "elbencho-first-done", "iogauge_extras/suites", "elbencho.py",
        '_count(data, "last_done", *below, key)',
        '_count(data, "first_done", *below, key)',
        "tests/unit/tools/test_elbencho.py::test_a_recorded_phase",
        "the rate of elbencho's fastest process counts",
        passes=True,
    ),
    Mutant(
        "elbencho-trailing", "core", "untrusted.py",
        "    if end != len(text):",
        "    if False:",
        "tests/unit/tools/test_elbencho.py::test_what_is_no_whole_phase_is_refused",
        "text after elbencho's JSON is ignored",
    ),
    Mutant(
        "elbencho-fewer-files", "iogauge_extras/suites", "elbencho.py",
        "    if entries != files:",
        "    if entries > files:",
        "tests/unit/tools/test_elbencho.py::test_an_execution_over_files_that_is_not_whole",
        "elbencho worked on fewer files than asked",
    ),
    Mutant(
        "elbencho-sync", "iogauge_extras/suites", "elbencho.py",
        "    seconds = min(entries / rate, (shown_ms + 1) / 1000) + synced_ms / 1000",
        "    seconds = min(entries / rate, (shown_ms + 1) / 1000)",
        "tests/unit/tools/test_elbencho.py::test_the_time_of_the_sync_counts",
        "files count as created before they are on storage",
    ),
    Mutant(
        "dom-on-storage", "guards", "striping.py",
        'if request.begins_on_metadata and file.parts[0].pattern != "mdt":',
        "if False:",
        "tests/unit/test_guards.py::test_g10_of_files_whose_data_lie_with_the_metadata",
        "data that shall lie with the metadata lie on a storage target",
    ),
    Mutant(
        "directories-on-fewer-mdts", "guards", "striping.py",
        "else len(on) != count",
        "else False",
        "tests/unit/test_guards.py::test_g10_of_directories_with_the_tool_s_files",
        "a directory lies on fewer metadata targets than asked",
    ),
    Mutant(
        "io500-score", "iogauge_extras/suites", "io500.py",
        "        if abs(theirs - ours) > slack or abs(_number(said, key) - theirs) > 1e-6:",
        "        if abs(_number(said, key) - theirs) > 1e-6:",
        "tests/unit/tools/test_io500.py::test_what_contradicts_itself_is_refused",
        "the total of IO500 does not follow from its phases",
        passes=True,
    ),
    Mutant(
        "io500-missed-files", "iogauge_extras/suites", "io500.py",
        "if found < made else []",
        "if found < made / 2 else []",
        "tests/unit/tools/test_io500.py::test_a_find_that_misses_files_is_told",
        "IO500's find looks at fewer files than were made",
        passes=True,
    ),
    Mutant(
        "io500-ior-score", "iogauge_extras/suites", "io500.py",
        "    if not lines or any(abs(float(line) / 1024 - score) > 0.01 * score for line in lines):",
        "    if not lines:",
        "tests/unit/tools/test_io500.py::test_what_contradicts_itself_is_refused",
        "a score of IO500 is not what its IOR printed",
        passes=True,
    ),
    Mutant(
        "io500-mdtest-score", "iogauge_extras/suites", "io500.py",
        "    if timed is None or abs(timed.rate_ops_s / 1000 - score) > 0.001 * score:",
        "    if timed is None:",
        "tests/unit/tools/test_io500.py::test_what_contradicts_itself_is_refused",
        "a score of IO500 is not what its mdtest measured",
        passes=True,
    ),
    Mutant(
        "lead-backwards", "iogauge_extras/loads", "beside.py",
        "starts[measured] - starts[disturber] if",
        "abs(starts[measured] - starts[disturber]) if",
        "tests/unit/tools/test_fio.py::test_two_starts_say_when_a_disturber_began",
        "a disturber that began after the measurement seems to have begun before",
        passes=True,
    ),
    Mutant(
        "disturber-of-one-process", "iogauge_extras/loads", "beside.py",
        "    windows = 2 * beside.seconds * processes * (other.nodes or 1)",
        "    windows = 2 * beside.seconds",
        "tests/unit/tools/test_fio.py::test_a_stream_beside_a_storm",
        "a disturber of several processes seems busier than it was",
        passes=True,
    ),
    Mutant(
        "told-seconds", "tools", "fio/output.py",
        '    if not told or output.parameters.get("time_based") != "1":',
        "    if not told:",
        "tests/unit/tools/test_fio.py::test_only_a_job_that_runs_for_a_time_is_told_its_seconds",
        "fio's longest time counts as the time that it was told to run",
    ),
    Mutant(
        "in-flight-of-one", "tools", "fio/output.py",
        ", int(kept[0]) * int(kept[1])",
        ", int(kept[0])",
        "tests/unit/tools/test_fio.py::test_requests_in_flight_are_those_of_all_processes_of_a_node",
        "requests in flight are those of one process alone",
    ),
    # trend
    Mutant(
        "trend-of-the-invalid", "iogauge_extras/history", "states.py",
        '        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),\n',
        "",
        "tests/unit/test_trend.py::test_only_valid_points_count",
        "INVALID runs count in a trend",
    ),
    Mutant(
        "less-is-better", "iogauge_extras/history", "states.py",
        "pl.when(pl.col(\"better\") == \"less\").then(-1.0)",
        "pl.when(pl.col(\"better\") == \"less\").then(1.0)",
        "tests/unit/test_trend.py::test_a_latency_that_grows_is_an_alarm",
        "a latency that grows is an improvement",
    ),
    Mutant(
        "alarm-without-status", "iogauge_extras/history", "shown.py",
        "    return 1 if any(series.state is State.ALARM for series in judged) else 0",
        "    return 0",
        "tests/unit/test_trend.py::test_an_alarm_fails_a_pipeline_and_names_the_tunable",
        "`iogauge status --trend` ends with 0 in spite of an alarm",
    ),
    # workspace
    Mutant(
        "anybody-allows", "workspace", "permission.py",
        "        if info.st_uid not in (0, owner):",
        "        if info.st_uid < 0:",
        "tests/unit/test_allowed.py::test_a_marker_counts_only_from_root_or_the_owner",
        "anybody's file allows to write in a directory",
    ),
    Mutant(
        "root-owns-everything", "workspace", "permission.py",
        "    if place.owner != caller.uid:",
        "    if caller.uid not in (0, place.owner):",
        "tests/unit/test_allowed.py::test_root_may_write_everywhere_and_still_needs_to_own_it",
        "root writes in directories of others without a marker",
    ),
    Mutant(
        "removal-without-marker", "workspace", "directory.py",
        '            if not all(name.startswith(f"{MARKER}.") for name in os.listdir(fd)):',
        "            if not os.listdir(fd):",
        "tests/unit/test_workdir.py::test_a_directory_that_is_not_ours_is_not_removed",
        "the janitor removes a directory without our marker",
    ),
    Mutant(
        "lock-lost-unnoticed", "workspace", "lock.py",
        "            _unlink(self.place, self.name)\n"
        "        except (FileNotFoundError, directory.WorkdirError):\n"
        "            return False\n",
        "            _unlink(self.place, self.name)\n"
        "        except (FileNotFoundError, directory.WorkdirError):\n"
        "            return True\n",
        "tests/unit/test_lock.py::test_a_stopped_holder_loses_the_lock_and_leaves_the_next_ones_alone",
        "a holder that lost the lock believes that it had it throughout",
        passes=True,
    ),
    Mutant(
        "lease-of-nothing", "workspace", "lock.py",
        "(holder.gone or self.quiet_s >= holder.lease_s)",
        "(holder.gone or self.quiet_s >= 0)",
        "tests/unit/test_lock.py::test_a_holder_elsewhere_that_beats_is_left_alone",
        "a lock is taken from a holder that is alive",
    ),
)
# fmt: on
_defects_of = functools.cache(mutate.defects_of)


def recorded() -> Iterator[Mutant]:
    """The defects that `mutate.py` has recorded."""
    for line in (
        (ROOT / "benchmarks" / "defects.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        path, function, old, kind, test = json.loads(line)
        package, room, file = path.split("/", 2)
        name, harm = (
            f"{path}:{function}: {kind}: {old}",
            f"`{old}` of `{function}`: {kind}",
        )
        room = room if package == "iogauge" else f"{package}/{room}"
        yield Mutant(name, room, file, old, kind, test, harm, function=function)


MUTANTS = (*WRITTEN, *recorded())


def copy_tree(to: Path) -> None:
    """Copy what git knows and what it does not ignore, as it stands in the tree."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    listed = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)


class Copy:
    """A copy of the tree, in which tests run."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.scratch = folder / "tree", folder / "scratch"
        self.scratch.mkdir(parents=True)
        copy_tree(self.tree)
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if name != "IOGAUGE_ROOT"
            },
            "PYTHONPATH": str(self.tree / "reframe" / "src"),
            "PYTEST_DEBUG_TEMPROOT": str(self.scratch),
            # Where root runs the tests, mpirun must let it.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        words = [sys.executable, "-c", "import iogauge; print(iogauge.__file__)"]
        found = subprocess.run(
            words,
            cwd=self.tree,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        if not Path(found).is_relative_to(self.tree):
            raise SystemExit(
                f"mutants: iogauge is imported from {found}, expected {self.tree}"
            )

    def run(
        self, tests: Sequence[str], *words: str, planted: bool = False
    ) -> tuple[dict[str, list[str]], str]:
        """Run tests; returns how each ended (a word for each set of its parameters), and what pytest printed.

        If a defect is ``planted``, Python keeps no compiled file: it would take it for that of the next defect, which may
        have the same size, in the same second.
        The words: ``passed``, ``failed``, ``skipped``, and ``error`` for a test that was not run.
        """
        report = self.scratch / "junit.xml"
        report.unlink(missing_ok=True)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *(f"--rootdir={self.tree}", "-c", str(self.tree / "pyproject.toml")),
                *(f"--junitxml={report}", *words, *tests),
            ],
            cwd=self.tree,
            env=self._environment
            | ({"PYTHONDONTWRITEBYTECODE": "1"} if planted else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(
                timeout=ANSWER_S * (len(tests) if len(tests) > 1 else 1)
            )
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return {}, f"no end after {ANSWER_S} s"
        ended: dict[str, list[str]] = {}
        with contextlib.suppress(OSError, ElementTree.ParseError):
            for case in ElementTree.parse(report).iter("testcase"):
                place = f"{case.get('classname', '')}.{case.get('name', '').partition('[')[0]}"
                kinds = [
                    child.tag
                    for child in case
                    if child.tag in ("failure", "error", "skipped")
                ]
                word = (
                    {"failure": "failed"}.get(kinds[0], kinds[0]) if kinds else "passed"
                )
                ended.setdefault(place, []).append(word)
        return ended, said

    def try_out(self, mutant: Mutant) -> Outcome:
        """Plant a mutant, run its test, and put the file back as it was."""
        file = self.tree / mutant.path
        text, written = file.read_text(encoding="utf-8"), file.stat().st_mtime_ns
        began = time.monotonic()
        new = mutant.planted()
        file.write_text(
            new if isinstance(new, str) else ast.unparse(new), encoding="utf-8"
        )
        try:
            ended, said = self.run([mutant.test], planted=True)
        finally:
            file.write_text(text, encoding="utf-8")
            os.utime(file, ns=(written, written))  # as Python's caches know it
        words = ended.get(place_of(mutant.test), [])
        noticed = "failed" in words and "error" not in words
        lines = [line for line in said.splitlines() if line.startswith("E  ")]
        why = (
            lines[0][1:].strip() if noticed and lines else " ".join(sorted(set(words)))
        )
        return Outcome(mutant, noticed, why or said[-2000:], time.monotonic() - began)


def place_of(test: str) -> str:
    """A test's name as JUnit's XML has it, without its parameters."""
    file, _, name = test.partition("::")
    return f"{file.removesuffix('.py').replace('/', '.')}.{name.partition('[')[0].replace('::', '.')}"


def mistakes(mutants: Sequence[Mutant]) -> list[str]:
    """What no longer fits the tree: a text that is not there exactly once, a test that is not there."""
    found = []
    for mutant in mutants:
        count = mutant.places()
        if count != 1:
            found.append(
                f"{mutant.name}: its text stands {count} times in {mutant.path}, expected 1: correct it"
            )
        test, _, name = mutant.test.partition("::")
        function = name.rpartition("::")[2].partition("[")[0]
        if f"def {function}(" not in (ROOT / test).read_text(encoding="utf-8"):
            found.append(f"{mutant.name}: {test} has no {function}")
    return found


def green(copy: Copy, mutants: Sequence[Mutant], jobs: int) -> list[str]:
    """Run all named tests in the unchanged copy; returns a line for each that did not pass."""
    tests = list(dict.fromkeys(mutant.test for mutant in mutants))
    ended, said = copy.run(tests, f"-n{jobs}")
    wrong = []
    for test in tests:
        words = ended.get(place_of(test), [])
        if set(words) != {"passed"}:
            wrong.append(
                f"{test}: {', '.join(sorted(set(words))) or 'not run'} without any defect"
            )
    if wrong:
        print(said[-6000:])
    return wrong


def plant_all(copies: Sequence[Copy], mutants: Sequence[Mutant]) -> list[Outcome]:
    """Try all mutants out, as many at a time as there are copies; says each outcome."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    found: list[Outcome] = []

    def work(copy: Copy) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            one = copy.try_out(mutant)
            found.append(one)
            word = "noticed" if one.noticed else "SURVIVED"
            print(
                f"{word:8} {mutant.name:32} {one.seconds:5.1f} s  {one.said[:150]}",
                flush=True,
            )

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class Forks(mutate.Harness):
    """Takes the place of pytest's loop: plants each defect in a fork, by the code of the functions that it changes."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants, self.failed = mutants, False
        self.found: list[Outcome] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.functions = mutate.Functions()
        for mutant in self.mutants:
            name, began = mutant.test.partition("[")[0], time.monotonic()
            items = [
                item for item in session.items if item.nodeid.partition("[")[0] == name
            ]
            if self._fails(items, None) is False and self._fails(items, mutant):
                said = "in a fork"
                self.found.append(Outcome(mutant, True, said, time.monotonic() - began))
        return True

    def _fails(self, items: Sequence[pytest.Item], mutant: Mutant | None) -> bool:
        """Whether one of the tests fails in a fork, with a defect or without."""
        pid = os.fork()
        if pid == 0:
            with open(os.devnull, "w") as null:
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(mutate.PATIENCE_S)
            try:
                if mutant:
                    file = ROOT / mutant.path
                    self.functions.exchange(
                        file, compile(mutant.planted(), str(file), "exec")
                    )
                passed = all(self._passes(item) for item in items)
                os._exit(0 if passed and items else 1)
            finally:
                os._exit(2)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def in_forks(mutants: Sequence[Mutant]) -> list[Outcome]:
    """The defects that unit tests notice in a fork; the others need a tree of their own."""
    tried = [
        one for one in mutants if "/unit/" in one.test and one.file.endswith(".py")
    ]
    forks = Forks(tried)
    tests = list(dict.fromkeys(one.test.partition("[")[0] for one in tried))
    if tests:
        os.chdir(ROOT)
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main(["-q", *mutate.OPTIONS, *tests], plugins=[forks])
    return forks.found


def table(mutants: Collection[Mutant]) -> list[str]:
    """Lines of a table, a row for each mutant."""
    rows = ["| what would go unnoticed | where | test that fails |", "|---|---|---|"]
    for mutant in mutants:
        test = mutant.test.removeprefix("tests/")
        rows.append(f"| {mutant.harm} | `{mutant.room}/{mutant.file}` | `{test}` |")
    return rows


def page() -> str:
    """The table of all defects, as Markdown."""
    passes = [mutant for mutant in MUTANTS if mutant.passes]
    others = [mutant for mutant in MUTANTS if not mutant.passes]
    rooms = {mutant.room for mutant in MUTANTS}
    lines = [
        "# Defects that a test must notice",
        "",
        f"Written by `python benchmarks/mutants.py --write FILE`: {len(MUTANTS)} defects, at least one in each of the "
        f"{len(rooms)} rooms of the",
        "library. Each was planted alone in a copy of the tree, and the named test failed; without it all of them passed.",
        "The changed lines stand in the program.",
        "",
        f"## A wrong PASS: {len(passes)}",
        "",
        *table(passes),
        "",
        f"## Something else that nobody would see: {len(others)}",
        "",
        *table(others),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="copies that work at a time"
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the table of all"
    )
    options = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(known)}")
    if options.write and options.names:
        parser.error("--write needs a whole run: name no mutant")
    mutants = [known[name] for name in options.names or known]
    began = time.monotonic()
    wrong = mistakes(mutants)
    forked = [] if wrong else in_forks(mutants)
    print(f"mutants: {len(forked)} of {len(mutants)} noticed in forks", flush=True)
    done = {one.mutant.name for one in forked}
    rest = [mutant for mutant in mutants if mutant.name not in done]
    if rest and not wrong:
        with tempfile.TemporaryDirectory(prefix="iogauge-mutants-") as folder:
            copies = [Copy(Path(folder, str(n))) for n in range(options.jobs)]
            wrong = green(copies[0], rest, options.jobs)
            if not wrong:
                tried = plant_all(copies, rest)
                wrong = [
                    f"{one.mutant.name} survived" for one in tried if not one.noticed
                ]
    for line in wrong:
        print(f"mutants: {line}")
    seconds = time.monotonic() - began
    if wrong:
        return 1
    print(f"mutants: {len(mutants)} planted, {len(mutants)} noticed, {seconds:.0f} s")
    if options.write:
        options.write.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
