"""Protocols of other servers, each translated into the native requests and back."""
