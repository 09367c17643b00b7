"""The reading of one file goes on around its mistakes; addresses and URLs are judged without showing passwords."""

import pytest

from gateway.settings_document import Document, host_and_port, http_url, is_loopback
from gateway.source import Mistake, Position, read


def document(text: str, *broken: str, environ=None, folder=None) -> Document:
    source = read("f.yaml", text.encode())
    return Document(source, [Mistake(source.at(pointer), "bad", pointer) for pointer in broken], environ or {}, folder)


def test_members_that_can_not_be_used_look_absent():
    root = document("a: {b: 1, c: 2}\nd: 3", "/a/b", "/d").root
    a = root.section("a")
    assert [a.get("b"), a.get("c"), a.get("z", 9), root.get("d", 4)] == [None, 2, 9, 4]
    assert [root.sound("a"), root.sound("d"), a.sound("c"), a.sound("b")] == [False, False, True, False]


def test_what_is_inside_a_broken_value_can_not_be_used():
    root = document("a: {b: {c: 1}}", "/a").root
    assert root.section("a").members == {}
    assert not root.document.sound("/a/b/c")


def test_only_a_pointer_itself_is_broken_and_not_one_that_begins_alike():
    assert document("a: 1\nab: 2", "/a").root.get("ab") == 2


def test_the_sound_items_of_a_list_are_given():
    root = document("a: [{b: 1}, {b: 2}, {b: 3}]", "/a/1/b").root
    assert [item.members["b"] for item in root.sections("a")] == [1, 3]
    assert [item.pointer for item in root.sections("a")] == ["/a/0", "/a/2"]


def test_a_mistake_is_placed_at_what_it_names():
    root = document("a:\n  - {b: 1, c: 2}\n").root
    (item,) = root.sections("a")
    item.report("no", "c")
    item.report("no", "zzz")
    assert [mistake.position for mistake in root.document.mistakes] == [Position("f.yaml", 2, 15), Position("f.yaml", 2, 5)]
    assert item.line("b") == 2


def test_a_conversion_that_fails_is_a_mistake_and_gives_the_default():
    root = document("a: x\nb: 5").root
    assert [root.convert("a", int, 7), root.convert("b", int, 7), root.convert("zzz", int, 7)] == [7, 5, 7]
    assert [mistake.pointer for mistake in root.document.mistakes] == ["/a"]


def test_a_reference_that_leads_nowhere_makes_its_value_unusable(tmp_path):
    root = document('secret: ["${env:NONE}"]', folder=tmp_path).root
    assert not root.sound("secret")
    assert len(root.document.mistakes) == 1


def test_a_file_that_is_no_mapping_has_no_members():
    assert document("[1]", "").root.members == {}


@pytest.mark.parametrize("url", ["http://127.0.0.1:9001/mcp", "https://billing.internal", "https://[::1]:8/x/", "http://a-b.c/%20"])
def test_http_urls_are_kept_as_they_are(url):
    assert http_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a", "a.b/c", "//a", "http://", "http:///x", "https://user:hunter2@a", "http://hunter2@a", "http://a/x y", "http://a/\n", "http://ä",
        "http://a#f", "http://a?q=1", "http://a:99999", "http://a:hunter2", "http://a:0", "http://[::1", "file:///etc/passwd", "http://a\tb",
    ],
)  # fmt: skip
def test_other_urls_are_refused_without_showing_what_may_be_a_password(url):
    with pytest.raises(ValueError, match=r".") as caught:
        http_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_query_is_taken_only_where_it_may_stand():
    assert http_url("http://a?q=1", query=True) == "http://a?q=1"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8700", ("127.0.0.1", 8700)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert host_and_port(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1", ":8700", "a:", "a:x", "a:65536", "::1:8700", "[::1]", "[zz]:1", "a:-1", "a:٣", "*:80", "a b:1", ""])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        host_and_port(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_only_loopback_addresses_and_localhost_stay_on_this_machine(host, loopback):
    assert is_loopback(host) is loopback
