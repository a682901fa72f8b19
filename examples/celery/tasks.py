# tasks.py
import time

from celery import Celery

app = Celery("tasks", broker="redis://127.0.0.1:6379/0", backend="redis://127.0.0.1:6379/1")


@app.task
def send_invoice(number: int) -> str:
    time.sleep(0.5)
    return f"invoice {number} sent"


app.conf.task_routes = {"tasks.send_invoice": {"queue": "mail"}}
