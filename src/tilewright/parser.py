"""Relay's text under the names TVM users know: `tilewright.parser.parse(text)`."""

from tilewright.relay.parser import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
