"""The real driver: core's machines over gRPC and on PJRT devices. It imports core, and decides nothing."""

__seaway__ = True
