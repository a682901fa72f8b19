"""`penstock workflow`: what a changed code of workflows needs: replay, fix, check."""
