"""What our exit codes mean; docs/en/local.md tells them to users."""

COMPLETED = 0
FAILED = 1  # the job ran and failed
REFUSED = 2  # nothing was run: the command line, the YAML or the cluster does not allow it
NOT_YET = 3  # the job goes on; we stopped waiting
NOBODY_READS = 141  # our output was cut off, as by `| head`; shells have it so
INTERRUPTED = 130  # Ctrl-C, as shells have it
