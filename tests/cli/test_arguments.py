"""What every command takes, and the two kinds of number."""

from __future__ import annotations

import argparse

import pytest

from gateway.cli.arguments import Parser, counting, group, listing, port, steering, url


def test_config_and_json_may_stand_before_and_after_the_command() -> None:
    top = Parser(prog="x")
    top.set_defaults(config="default", json=False)
    top.add_subparsers().add_parser("one").add_subparsers().add_parser("two")
    for line in (["-c", "f", "--json", "one", "two"], ["one", "--json", "two", "--config", "f"], ["one", "two", "--json", "-c", "f"]):
        args = top.parse_args(line)
        assert (args.config, args.json) == ("f", True)
    args = top.parse_args(["one", "two"])
    assert (args.config, args.json) == ("default", False)


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "", "²"])
def test_a_count_is_a_whole_number_from_1_on(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        counting(text)
    assert counting("50") == 50


@pytest.mark.parametrize("text", ["0", "65536", "http", ""])
def test_a_port_is_one_that_can_be_listened_on(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        port(text)
    assert port("8700") == 8700


@pytest.mark.parametrize("text", ["nonsense", "127.0.0.1:8700", "ftp://here", ""])
def test_an_address_says_how_it_is_spoken_to(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        url(text)
    assert url("https://gateway.example/") == "https://gateway.example"


def test_a_command_tells_what_it_does_in_its_own_help_too(capsys: pytest.CaptureFixture[str]) -> None:
    top = Parser(prog="x")
    steering(group(top.add_subparsers(), "runs", "stop runs"), "freeze", "let a run start nothing more", lambda _: None)
    for line, told in (["runs", "-h"], "Stop runs."), (["runs", "freeze", "-h"], "Let a run start nothing more, with your key"):
        with pytest.raises(SystemExit):
            top.parse_args(line)
        assert told in " ".join(capsys.readouterr().out.split())


def test_a_list_has_a_limit() -> None:
    top = Parser(prog="x")
    listing(top.add_subparsers(), lambda _: None)
    assert (top.parse_args(["list"]).limit, top.parse_args(["list", "--limit", "3"]).limit) == (50, 3)
