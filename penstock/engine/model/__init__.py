"""Plain data that everybody may know: ids, states, graphs, deployments, messages, options, errors."""
