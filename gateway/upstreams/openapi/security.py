"""What a document wants to be shown, held against the credentials there are: for whoever deploys, who must learn of it before a call fails.

Nothing is refused for it: documents often want more than their servers do. Source: OpenAPI 3.1.1 §4.8.27, §4.8.30.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.upstreams.credentials import Credentials
from gateway.upstreams.openapi.document import Document, Node, Unusable
from gateway.upstreams.openapi.operations import Found


def missing(document: Document, found: Iterable[Found], credentials: Credentials) -> Iterator[Unusable]:
    """One complaint for each thing to add, at the first operation that wants it."""
    wanting: dict[str, list[Found]] = {}
    for one in found:
        if wanted := _wanted(document, one, credentials):
            wanting.setdefault(wanted, []).append(one)
    for wanted, these in wanting.items():
        others = f" and {len(these) - 1} more" if len(these) > 1 else ""
        yield Unusable(these[0].node.pointer, f"{these[0]}{others} will be refused without credentials: write auth: {wanted}")


def _wanted(document: Document, found: Found, credentials: Credentials) -> str | None:
    """The first alternative that the operation names, if the credentials satisfy none."""
    written = found.node.get("security") or document.root.get("security")
    alternatives = [one for one in written.value if isinstance(one, dict)] if written is not None and isinstance(written.value, list) else []
    lacking = [[text for name in one if (text := _lacks(document, name, credentials))] for one in alternatives]
    return None if not lacking or [] in lacking else ", ".join(lacking[0])


def _lacks(document: Document, name: str, credentials: Credentials) -> str | None:
    """What to write for a security scheme that the credentials don't satisfy."""
    written = document.root.get("components", "securitySchemes", name)
    try:
        scheme = document.resolved(written) if written is not None else Node({}, "")
    except Unusable:
        scheme = Node({}, "")
    kind, place, key = scheme.text("type"), scheme.text("in"), scheme.text("name") or ""
    if kind == "apiKey":
        known = {"header": key.lower() in credentials.header_names, "query": key in credentials.query, "cookie": "cookie" in credentials.header_names}
        written_as = f"{{headers: {{Cookie: {key}=…}}}}" if place == "cookie" else f"{{api_key: {{{place}: {key}, value: …}}}}"
        return None if known.get(place or "") else written_as
    if "authorization" in credentials.header_names:
        return None
    if kind == "http":
        is_basic = (scheme.text("scheme") or "").lower() == "basic"
        return "{basic: {user: …, password: …}}" if is_basic else "{bearer: …}"
    token_url = scheme.get("flows", "clientCredentials", "tokenUrl")
    return f"{{oauth: {{token_url: {token_url.value}, …}}}}" if token_url is not None else f"{{bearer: …}} ({name})"
