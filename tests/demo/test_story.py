"""`gateway demo` as a newcomer meets it: all goes as told, a step that doesn't makes it fail, and it ends without leaving anything behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gateway.demo import stage
from gateway.demo.stage import LOG, any_port
from gateway.demo.story import CHAPTERS, Story, tell
from tests.cli.running import ended, said, started


def left_in(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if (one / "cwd").readlink().is_relative_to(folder):
                found.append(int(one.name))
        except OSError:
            continue
    return found


def test_it_tells_all_chapters_and_ends_with_0(tmp_path: Path) -> None:
    process = started(tmp_path, "demo", "--once", env={"TMPDIR": str(tmp_path)})
    text = said(process, "All of it went as it should.")
    last = ended(process)
    assert (last.code, last.err) == (0, ""), text
    for number, name in enumerate(CHAPTERS, 1):
        assert f"\n{number}. {getattr(Story, name).__doc__}\n" in text
    assert "\n   NO " not in text
    assert "Sound: " in text
    assert list(tmp_path.iterdir()) == [], "what it made in the temporary folder is gone"


@pytest.mark.parametrize(("was", "instead", "wrong"), [
    ("      when: args.amount > 50.0", "      when: args.amount > 500.0", [6]),
    ("  - tool: shop.send_mail", "  - {tool: shop.delete_customer, effect: non_idempotent, approval: never}\n  - tool: shop.send_mail", [1, 5]),
    ("loops: {reads: 4}", "loops: {reads: 9}", [8]),
])  # fmt: skip
def test_a_chapter_that_goes_otherwise_fails_the_demo_and_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], was: str, instead: str, wrong: list[int]
) -> None:
    shutil.copytree(stage.FILES, tmp_path / "files")
    policy = tmp_path / "files" / "policies" / "demo.yaml"
    assert was in policy.read_text()
    policy.write_text(policy.read_text().replace(was, instead))
    monkeypatch.setattr(stage, "FILES", tmp_path / "files")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tell(None, None, once=True) == 1
    told = capfd.readouterr()
    missed = told.out.rpartition("This went otherwise than it should: ")[2]
    assert [number for number in range(1, 10) if f"{number}. " in missed][: len(wrong)] == wrong
    assert LOG in told.err
    assert len(list(tmp_path.glob(f"gateway-demo-*/{LOG}"))) == 1


@contextmanager
def demo(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that was told to its end and stays up; what it said."""
    process = started(folder, "demo", "--port", str(any_port()), "--folder", str(folder / "demo"))
    try:
        yield process, said(process, "\n  curl ")
    finally:
        for pid in left_in(folder):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_it_stays_up_and_ctrl_c_ends_it_and_all_that_it_started(tmp_path: Path) -> None:
    with demo(tmp_path) as (process, text):
        url = text.split()[3].rstrip(",")
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        assert len(left_in(tmp_path)) >= 3
        os.killpg(process.pid, signal.SIGINT)
        last = ended(process)
        assert (last.code, last.err) == (0, "")
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        assert left_in(tmp_path) == []
    assert (tmp_path / "demo" / LOG).exists(), "a folder that was named is kept"


def test_a_termination_of_the_demo_alone_leaves_no_orphans(tmp_path: Path) -> None:
    with demo(tmp_path) as (process, _):
        process.terminate()
        assert ended(process).code == 0
        assert left_in(tmp_path) == []


def test_an_interruption_in_the_middle_of_the_story_leaves_no_orphans(tmp_path: Path) -> None:
    process = started(tmp_path, "demo", "--once", env={"TMPDIR": str(tmp_path)})
    said(process, "2. ")
    os.killpg(process.pid, signal.SIGINT)
    last = ended(process)
    assert (last.code, "Traceback" in last.err) == (130, False)
    assert left_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_gateway_that_dies_ends_the_demo_with_1(tmp_path: Path) -> None:
    with demo(tmp_path) as (process, _):
        (server,) = [pid for pid in left_in(tmp_path) if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(server, signal.SIGKILL)
        last = ended(process)
        assert (last.code, str(tmp_path / "demo" / LOG) in last.err) == (1, True)
