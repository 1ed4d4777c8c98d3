// @ts-check
/** How a job takes checkpoints, in words. */

import { duration } from "../../base/format.js";

const NEVER_MS = 2 ** 62;

/** @param {any} config as `/jobs/:id/checkpoints/config` tells it @returns {[string, any, string?][]} */
export function checkpointFacts(config) {
  const { externalization } = config;
  const kept = externalization.enabled ? (externalization.delete_on_cancellation ? "until the job is cancelled" : "after the job, too") : "while the job runs";
  return [
    ["Interval", config.interval >= NEVER_MS ? "none: only savepoints are taken" : duration(config.interval)],
    ["Mode", config.mode === "exactly_once" ? "exactly once" : "at least once"],
    ["Timeout", duration(config.timeout)],
    ["Pause between two", duration(config.min_pause)],
    ["At a time", config.max_concurrent],
    ["Unaligned", config.unaligned_checkpoints ? unaligned(config.aligned_checkpoint_timeout) : "no"],
    ["Failures tolerated", config.tolerable_failed_checkpoints],
    ["Kept", kept],
    ["State backend", config.state_backend],
    ["Storage", config.checkpoint_storage || "n/a"],
    ["After tasks have finished", config.checkpoints_after_tasks_finish ? "yes" : "no"],
  ];
}

const unaligned = (/** @type {number} */ timeout) => (timeout > 0 ? `when aligning takes ${duration(timeout)}` : "always");
