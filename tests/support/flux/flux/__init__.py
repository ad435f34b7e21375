"""Stand-in for Flux's Python bindings: enough for ReFrame's backend to write a job script."""
