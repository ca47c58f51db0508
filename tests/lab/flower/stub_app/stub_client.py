"""A ClientApp that answers with the number of its process."""

import os

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    return Message(RecordDict({"m": MetricRecord({"process": os.getpid()})}), reply_to=message)
