"""A plain HTTP tool for the demo (`python -m gateway.demo.rates PORT`): `GET /rates/{base}?to=USD`."""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

USD = {"EUR": 1.09, "USD": 1.0, "GBP": 1.27}


async def rate(request: Request) -> JSONResponse:
    """One unit of `base` in the currency `to`."""
    base, to = request.path_params["base"], request.query_params.get("to", "USD")
    if base not in USD or to not in USD:
        return JSONResponse({"error": f"no rate from {base} to {to}; there are {sorted(USD)}"}, 404)
    return JSONResponse({"base": base, "to": to, "rate": round(USD[base] / USD[to], 6)})


app = Starlette(routes=[Route("/rates/{base}", rate)])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
