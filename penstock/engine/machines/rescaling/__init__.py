"""Elasticity of a streaming job: from slots to parallelism, which subtask goes where, and when a change becomes a rescale."""
