# send.py
from tasks import send_invoice

results = [send_invoice.delay(number) for number in range(20)]
for result in results:
    print(result.get(timeout=100))
