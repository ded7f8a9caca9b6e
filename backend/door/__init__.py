"""The door for unmodified JAX programs: a server of the IFRT proxy protocol, whose client is in every jaxlib.

ifrt_messages   the protocol's messages (schema: how they are made; value_schema, proxy_schema: what they are)
session_port    what the streams below and the session above know of each other
"""
