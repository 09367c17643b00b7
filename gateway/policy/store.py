"""The folder of policies as loaded: which set governs a run, and sets by digest, the old ones revived from their texts.

A file that can't be used stops the whole load, so that nothing is ever governed by half a folder; whoever reloads keeps the last good one.
`*_test.yaml` are tests of policies and no policies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from gateway.core.canonical import canonical, digest
from gateway.core.model import Principal
from gateway.core.policy import Policy, PolicySet
from gateway.policy.compile import CEILING, checked, compile_document
from gateway.ports import PolicyError

TESTS = "_test.yaml"


class LoadedPolicies:
    """Implements `ports.Policies`. `digest` is over all files; `files` are their names in order."""

    def __init__(self, documents: Iterable[tuple[Policy, str]]) -> None:
        loaded = list(documents)
        self.policies = tuple(sorted((p for p, _ in loaded if p.kind != CEILING), key=lambda p: (-p.priority, p.name)))
        self.ceilings = tuple(sorted((p for p, _ in loaded if p.kind == CEILING), key=lambda p: p.name))
        self.files = tuple(sorted(p.file for p, _ in loaded))
        self.digest = digest(sorted([p.file, p.digest] for p, _ in loaded))
        self._texts = {p.digest: text for p, text in loaded}
        self._sets: dict[str, PolicySet] = {}
        self._digests: dict[tuple[tuple[str, str], ...], str] = {}
        self._kept: dict[str, str] = {}

    def documents(self) -> Iterable[tuple[Policy, str]]:
        """Each file that was loaded, compiled and as text."""
        return ((policy, self._texts[policy.digest]) for policy in (*self.policies, *self.ceilings))

    def choose(self, principal: Principal, task_type: str, name: str | None) -> PolicySet | None:
        """The first policy that matches, by priority, then name, under every ceiling that matches; None if there is none."""
        named = (p for p in self.policies if name in (None, p.name))
        policy = next((p for p in named if p.match.fits(principal, task_type)), None)
        if policy is None:
            return None
        return self._remembered(policy, tuple(c for c in self.ceilings if c.match.fits(principal, task_type)))

    def by_digest(self, digest: str) -> PolicySet | None:
        """A set that was chosen or revived here; None means: revive it from the text that the ledger keeps."""
        return self._sets.get(digest)

    def texts(self, digest: str) -> Mapping[str, str]:
        """digest -> the one text that holds all files of the set. KeyError for a set that isn't known here."""
        return {digest: self._kept[digest]}

    def revive(self, digest: str, text: str) -> PolicySet:
        """Compile a set from its kept text. Raises PolicyError if that is another than its digest says, or can't be used any more."""
        if _sha256(text) != digest:
            raise PolicyError(f"the kept text of policy set {digest[:12]} is another than its digest says")
        files = json.loads(text)
        first, *others = [(compile_document(file, one.encode()), one) for file, one in (files["policy"], *files["ceilings"])]
        self._texts |= {policy.digest: one for policy, one in (first, *others)}
        return self._remembered(first[0], tuple(policy for policy, _ in others))

    def _remembered(self, policy: Policy, ceilings: tuple[Policy, ...]) -> PolicySet:
        """A set's digest is that of its kept text, so that nothing else can be revived under it."""
        members = tuple((one.file, one.digest) for one in (policy, *ceilings))
        digest = self._digests.get(members)
        if digest is None:
            first, *others = [[one.file, self._texts[one.digest]] for one in (policy, *ceilings)]
            text = canonical({"policy": first, "ceilings": others}).decode()
            digest = self._digests[members] = _sha256(text)
            self._kept[digest] = text
            self._sets[digest] = PolicySet(digest, policy, ceilings)
        return self._sets[digest]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def load_policies(folder: Path) -> LoadedPolicies:
    """Every `*.yaml` of the folder in name order. Raises PolicyError with all mistakes of all files; positions show names in the folder."""
    mistakes: list[str] = []
    documents: list[tuple[Policy, str]] = []
    for path in _files(folder):
        try:
            text = path.read_bytes()
            documents.append((compile_document(path.name, text), text.decode()))
        except PolicyError as error:
            mistakes.append(str(error))
        except OSError as error:
            mistakes.append(f"{path.name}:1:1: can't be read: {error.strerror}")
    mistakes += _together(documents, complete=not mistakes)
    if mistakes:
        raise PolicyError("\n".join(mistakes))
    return LoadedPolicies(documents)


def _files(folder: Path) -> list[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.endswith(TESTS))
    except OSError as error:
        raise PolicyError(f"{folder}: can't be read: {error.strerror}") from None
    named = [path for path in paths if path.suffix == ".yaml"]
    missed = [path for path in paths if path not in named and path.suffix.lower() in (".yaml", ".yml")]
    if missed:
        raise PolicyError("\n".join(f"{path.name}:1:1: policies end in .yaml; this file would be left out" for path in missed))
    if not named:
        raise PolicyError(f"{folder}: holds no policy (*.yaml); without one every run is refused")
    return named


def _together(documents: list[tuple[Policy, str]], *, complete: bool) -> Iterable[str]:
    """What is wrong between files. `complete`: no file was left out, so what isn't here isn't there."""
    files: dict[str, str] = {}
    for policy, text in documents:
        if policy.name in files:
            place = checked(policy.file, text.encode()).source.at("/name")
            yield f"{place}: the name {policy.name!r} stands already in {files[policy.name]}"
        files.setdefault(policy.name, policy.file)
    if complete and all(policy.kind == CEILING for policy, _ in documents):
        yield f"{documents[0][0].file}:1:1: there are only ceilings; without a policy every run is refused"
