"""Relay's text under the names TVM users know: `tilewright_tvm.parser.parse(text)`."""

from tilewright_tvm.relay.parser import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
