"""Kills a program again and again while it updates a region, and checks what it finds after.

apps.py says what is run (one small class per application), worker.py runs it in a process of its
own, campaign.py sends the batches, kills, and holds the oracle.
"""

from .apps import APPS, App, Batch, Gpkvs, Table, Verdict
from .campaign import Campaign, Event, Options, Result
from .plan import Kill, make_plan
from .resume import ResumeCampaign, ResumeResult

__all__ = [
    "APPS",
    "App",
    "Batch",
    "Campaign",
    "Event",
    "Gpkvs",
    "Kill",
    "Options",
    "Result",
    "ResumeCampaign",
    "ResumeResult",
    "Table",
    "Verdict",
    "make_plan",
]
