"""Options of Flower's programs, and lines of their logs, that this project relies on."""

# The file with the secret without which a SuperNode or SuperLink hands out no task.
SECRET_OPTION = "--superexec-auth-secret-file"  # noqa: S105 (an option's name)

# What a SuperNode logs about a message.
RECEIVED = "Received successfully"
REPLYING = "Sending: "  # the reply is there, and its parts are being uploaded
# The reply was sent, or given up, and the SuperNode asks for the next message.
DONE = ("Sent successfully", "Failed to send message", "Ignoring reply message")
