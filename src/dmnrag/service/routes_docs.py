"""`/openapi.json` and `/docs`: the API described, without any file from elsewhere.

FastAPI's own pages load scripts from another host, which a machine without internet does not reach and the
content security policy forbids. This page is plain HTML, made from the same description.
"""

import json
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { margin-top: 2.5rem; border-top: 1px solid #bbb; padding-top: 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f3f3f3; }
pre { padding: .75rem; overflow: auto; }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
"""


def describe(app: FastAPI, with_keys: bool) -> None:
    """Set what `/openapi.json` says, and serve `/docs`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app, with_keys)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change it

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))


def _described(app: FastAPI, with_keys: bool) -> dict[str, Any]:
    """FastAPI's description; requests that do not fit are 400 here, not the 422 that it adds by itself."""
    described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    schemas = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    if with_keys:
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"key": []}]
    return described


def _page(described: dict[str, Any]) -> str:
    title = escape(described["info"]["title"])
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>{title}</h1><p>{escape(described['info']['description'])}</p>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(f"{method.upper()} {path}", operation))
    parts.append("<h2>Documents</h2>")
    for name, schema in described["components"]["schemas"].items():
        parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3>{_schema(schema)}')
    return "\n".join([*parts, "</body></html>"])


def _operation(head: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows = [
        f"<tr><th>{escape(status)}</th><td>{escape(response.get('description', ''))} {_contents(response)}</td></tr>"
        for status, response in operation["responses"].items()
    ]
    asks = f"<p>Takes {_type(body)}</p>" if body else ""
    return (
        f"<h2><code>{escape(head)}</code></h2><p><b>{escape(operation.get('summary', ''))}.</b> "
        f"{escape(operation.get('description', ''))}</p>{asks}<table>{''.join(rows)}</table>"
    )


def _contents(response: dict[str, Any]) -> str:
    return ", ".join(
        _type(content["schema"]) for content in response.get("content", {}).values() if "schema" in content
    )


def _schema(schema: dict[str, Any]) -> str:
    rows = []
    for name, value in schema.get("properties", {}).items():
        needed = "" if name not in schema.get("required", ()) else " (always)"
        rows.append(
            f"<tr><th><code>{escape(name)}</code>{needed}</th><td>{_type(value)}</td>"
            f"<td>{escape(value.get('description', ''))}</td></tr>"
        )
    return f"<p>{escape(schema.get('description', ''))}</p><table>{''.join(rows)}</table>"


def _type(schema: dict[str, Any]) -> str:
    """In words, with links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return escape(", ".join(map(str, schema["enum"])))
    if "const" in schema:
        return escape(json.dumps(schema["const"], ensure_ascii=False))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))
