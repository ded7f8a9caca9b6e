"""A client's machine in a user's process, with its streams to the controller and to hosts.

remote   the machine and its node: sends calls, receives contents
"""

from .remote import Head, PutOffer, Remote
