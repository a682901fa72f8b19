"""A definition that uses most of what there is, in its three written forms."""

TOML = """
name = "orders"
version = 3
required = ["order"]
queue = "orders"
tags = ["shop"]
description = "From order to parcel."

[context]
gateway = "stripe"
paid = false

[[steps]]
name = "check"
function = "shop.check"
takes = { order = "context.order" }
sets = { gateway = "result.gateway" }

[[steps]]
name = "pay"
needs = ["check"]
when = "results.check.total > 0"
tries = 5
timeout_seconds = 30
sets = { paid = "result.ok" }
compensate = { function = "shop.refund", takes = { payment = "results.pay.id" } }

[steps.branch]
on = "context.gateway"
cases.stripe = { function = "shop.pay_stripe", takes = { total = "results.check.total" } }
cases.paypal = { function = "shop.pay_paypal", queue = "slow" }
otherwise = { function = "shop.pay_by_invoice" }

[[steps]]
name = "reserve"
function = "shop.reserve"
needs = ["check"]
may_fail = true
priority = "high"

[[steps]]
name = "gathered"
needs = ["pay", "reserve"]
rule = "all_done"

[[steps]]
name = "ship"
function = "shop.ship"
arguments = { carrier = "post" }
takes = { payment = "results.pay.id" }
needs = ["gathered", "pay"]
rule = "any_success"
delay_seconds = 60.0
backoff = { first_seconds = 2.0 }
tags = ["parcel"]

[[steps]]
name = "alarm"
function = "shop.alarm"
needs = ["pay"]
rule = "any_failed"
"""
