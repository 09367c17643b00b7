"""Tables and fields for people, JSON for programs; nothing foreign reaches a terminal as it came."""

from __future__ import annotations

import json

import pytest

from gateway.cli import output

ROW = {"run": "run_1", "goal": "a\x1b[31mb", "opened_at": 0, "execute_by": None, "stream": "run_1", "due_at": 5}


def test_a_table_is_aligned_and_says_what_it_means_to_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([{"run": "r", "opened_at": 0}, {"run": "longer", "opened_at": None}], ("run", "opened_at"), nothing="No runs.")
    assert capsys.readouterr().out.splitlines() == ["RUN     OPENED", "r       1970-01-01T00:00:00.000Z", "longer  -"]
    output.table([], ("run",), nothing="No runs.")
    assert capsys.readouterr().out == "No runs.\n"


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([ROW], ("goal",), nothing="")
    output.fields(ROW.items())
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert said.count("a␛[31mb") == 2


def test_fields_leave_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    output.fields([("a", None), ("bcd", "x"), ("e", ()), ("f", 0)])
    assert capsys.readouterr().out == "bcd  x\nf    0\n"


def test_a_row_for_programs_has_times_as_text_and_nothing_internal() -> None:
    assert output.plain(ROW) == {"run": "run_1", "goal": ROW["goal"], "opened_at": "1970-01-01T00:00:00.000Z", "execute_by": None}


def test_rows_are_a_table_for_people_and_every_field_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    output.listed([ROW], ("run",), as_json=False, nothing="")
    assert capsys.readouterr().out == "RUN\nrun_1\n"
    output.listed([ROW], ("run",), as_json=True, nothing="No runs.")
    assert json.loads(capsys.readouterr().out) == [output.plain(ROW)]
    output.listed([], ("run",), as_json=True, nothing="No runs.")
    assert json.loads(capsys.readouterr().out) == []


def test_json_goes_to_stdout_and_notes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.say_json({"ü": 1})
    output.note("seen by people")
    said = capsys.readouterr()
    assert json.loads(said.out) == {"ü": 1}
    assert said.err == "seen by people\n"


def test_progress_is_for_terminals_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output.progress("1 of 2")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    output.progress("1 of 2")
    assert "1 of 2" in capsys.readouterr().err


def test_a_time_that_is_text_already_stays_as_it_is() -> None:
    assert output.cell("held_at", "2026-01-05T09:00:00.000Z") == "2026-01-05T09:00:00.000Z"
