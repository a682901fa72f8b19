"""A module that starts a thread when it is imported: what authors should not do."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
