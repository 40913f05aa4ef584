"""A consumer group: several processes share the images of one `[[stream]]`, each image goes to one of them, and is given
to another one if that process dies. Groups are independent: each has a `[[stream]]` of its own and gets all images.

usage: consumer_group.py deal STREAM ADDRESS [IMAGES]    takes the STINS stream, and deals its images out at ADDRESS
       consumer_group.py work ADDRESS                    one member: takes images from the dealer, prints their sums

for example
  consumer_group.py deal tcp://127.0.0.1:9998 tcp://127.0.0.1:5600 &
  consumer_group.py work tcp://127.0.0.1:5600 &
  consumer_group.py work tcp://127.0.0.1:5600

The rules (docs/downstream.md): a member asks for an image with each result, so nobody has more than one; an image whose
member says nothing for SILENCE_S is dealt again; the dealer takes the first result of an image and counts the others.
At the end it prints one line for each image, and an account. Exit code 1: an image has no result.
"""

import json
import os
import sys
import time

import zmq

SILENCE_S = 2.0
"""A member that computes longer than this must say that it lives: an empty message."""
QUEUE_IMAGES = 64
"""Images that the dealer holds; the service waits when they are taken."""
ATTEMPTS_MAX = 3
"""An image that so many members did not survive is given up, and named."""


class Dealer:
    """Deals the images of a stream out, and collects the results."""

    def __init__(self, stream, address):
        context = zmq.Context.instance()
        self.stream = context.socket(zmq.PULL)
        # libzmq must not take what the dealer does not hold.
        self.stream.rcvhwm = 2
        self.stream.connect(stream)
        self.members = context.socket(zmq.ROUTER)
        self.members.router_mandatory = True
        self.members.bind(address)
        self.waiting = {}  # number -> message; in the order in which they are dealt
        self.dealt = {}  # number -> (member, message, when it last said something)
        self.idle = {}  # members that asked; a dictionary keeps their order
        self.attempts, self.results = {}, {}
        self.given_up, self.again, self.doubled, self.is_over = [], 0, 0, False

    def run(self):
        poller = zmq.Poller()
        poller.register(self.members, zmq.POLLIN)
        poller.register(self.stream, zmq.POLLIN)
        while not (self.is_over and not self.waiting and not self.dealt):
            has_room = not self.is_over and len(self.waiting) + len(self.dealt) < QUEUE_IMAGES
            poller.modify(self.stream, zmq.POLLIN if has_room else 0)
            ready = dict(poller.poll(100))
            if self.stream in ready:
                self.take_image(self.stream.recv_multipart())
            if self.members in ready:
                self.take_answer(*self.members.recv_multipart())
            self.deal_again()
            self.deal()
        for member in self.idle:
            self.members.send_multipart([member, b"end"])

    def take_image(self, message):
        header = json.loads(message[0])
        if header["htype"] == "image":
            self.waiting[header["frame"]] = message
        self.is_over = header["htype"] == "series_end"

    def take_answer(self, member, number, *result):
        """A member asks (no number), says that it lives (a number), or brings the result of a number and asks."""
        if number and not result:
            if int(number) in self.dealt and self.dealt[int(number)][0] == member:
                self.dealt[int(number)] = (member, self.dealt[int(number)][1], time.monotonic())
            return
        if number:
            self.dealt.pop(int(number), None)
            self.waiting.pop(int(number), None)
            if int(number) in self.results:
                self.doubled += 1
            else:
                self.results[int(number)] = json.loads(result[0])
        self.idle[member] = True

    def deal(self):
        while self.waiting and self.idle:
            member, number = next(iter(self.idle)), next(iter(self.waiting))
            del self.idle[member]
            message = self.waiting.pop(number)
            try:
                self.members.send_multipart([member, *message])
            except zmq.ZMQError:
                self.waiting = {number: message} | self.waiting  # the member has gone; the image is the next one
                continue
            self.attempts[number] = self.attempts.get(number, 0) + 1
            self.dealt[number] = (member, message, time.monotonic())

    def deal_again(self):
        now = time.monotonic()
        for number, (_, message, when) in list(self.dealt.items()):
            if now - when < SILENCE_S:
                continue
            del self.dealt[number]
            if self.attempts[number] >= ATTEMPTS_MAX:
                self.given_up.append(number)
            else:
                self.again += 1
                self.waiting = {number: message} | self.waiting

    def account(self, images):
        missing = sorted(set(range(images or 0)) - set(self.results) | set(self.given_up))
        for number in sorted(self.results):
            print(json.dumps({"image": number} | self.results[number]))
        print(json.dumps({"results": len(self.results), "again": self.again, "doubled": self.doubled, "missing": missing}), flush=True)
        return 1 if missing else 0


def work(address):
    """A member. What it computes stands in one line; it may die at any moment."""
    import numpy as np

    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.connect(address)
    socket.send(b"")
    while (message := socket.recv_multipart()) != [b"end"]:
        header = json.loads(message[0])
        pixels = np.frombuffer(message[1], header["type"]).reshape(header["shape"])
        time.sleep(float(os.environ.get("SECONDS_PER_IMAGE", "0")))
        result = {"sum": int(pixels.sum(dtype="int64")), "worker": os.getpid()}
        socket.send_multipart([str(header["frame"]).encode(), json.dumps(result).encode()])


if __name__ == "__main__":
    if sys.argv[1:2] == ["deal"] and len(sys.argv) in (4, 5):
        dealer = Dealer(*sys.argv[2:4])
        dealer.run()
        sys.exit(dealer.account(int(sys.argv[4]) if len(sys.argv) == 5 else None))
    if sys.argv[1:2] == ["work"] and len(sys.argv) == 3:
        sys.exit(work(sys.argv[2]))
    sys.exit(__doc__)
