"""An app of Celery whose task is logged by an oracle, and a program that sends tasks.

The worker runs it in an environment of Celery's own: it imports nothing of ours. ``python
celery_consumer.py`` reads a number from each line of its input, sends so many tasks, and writes
``sent``.
"""

from __future__ import annotations

import os
import sys
import time

from celery import Celery

app = Celery("celery_consumer", broker=os.environ["SHOP_BROKER"])
app.conf.update(
    task_default_queue="mail",
    task_ignore_result=True,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
)


@app.task(name="handle")
def handle(message: str, seconds: float) -> None:
    """Logs ``start MESSAGE PID TIME`` and ``end …``; the process is that of the whole worker."""
    oracle = os.open(os.environ["SHOP_ORACLE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(oracle, f"start {message} {os.getppid()} {time.time()}\n".encode())
        time.sleep(seconds)
        os.write(oracle, f"end {message} {os.getppid()} {time.time()}\n".encode())
    finally:
        os.close(oracle)


def main() -> None:
    sent = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            sent += 1
            handle.apply_async((f"m{sent}", float(os.environ["SHOP_SECONDS"])))
        sys.stdout.write("sent\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
