"""Operations of an OpenAPI 3.0 or 3.1 document as tools: `read_api` says what they are, `OperationForm` makes their requests."""

from gateway.upstreams.openapi.api import Api, read_api

__all__ = ["Api", "read_api"]
