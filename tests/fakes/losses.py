"""Losses and deaths of workers, as a RequestQuarantine is told of them."""

POISON, OTHER = 1, 2


def lose(quarantine, host, digest=POISON, client=7, now=0.0, sent=0.0):
    quarantine.report_loss(digest, 100, host, client, f"request-{digest}", now, sent)


def kill(quarantine, hosts, digest, client=7, now=0.0, others=()):
    """The request ends one host after the other; with each, older requests of others are lost."""
    quarantined = []
    for host in hosts:
        for number, other in enumerate(others):
            lose(quarantine, host, 1000 * host + number, other, now, sent=now - 2)
        lose(quarantine, host, digest, client, now, sent=now - 0.1)
        quarantined += quarantine.report_down(host, now)
    return quarantined
