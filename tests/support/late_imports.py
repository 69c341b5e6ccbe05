"""Does the work of jobs as a child of a worker does, and says which modules it imported
after it had loaded its code.

A module that is imported later may be broken or missing, and the job was charged.
"""

import json
import os
import sys

from app.worker.child import load_modules


def main() -> None:
    """Reads a task from each line of standard input, and answers with the names of the
    modules.
    """
    load_modules()
    loaded = set(sys.modules)
    from app.services.drawing.perform import perform
    from app.services.jobs.task import JobTask

    for line in sys.stdin:
        task = JobTask.from_text(line)
        os.chdir(task.folder)
        perform(task, on_tree_done=lambda: None)
        print(json.dumps(sorted(sys.modules.keys() - loaded)), flush=True)


if __name__ == "__main__":
    main()
