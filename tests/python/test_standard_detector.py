"""The detector as servers of other control systems show it, where a connection of theirs is held up."""

import threading
import time

from konkordia._standard_detector import StandardDetector

STATUS = {
    "run": 1, "state": "running", "draining": False, "images_committed": 5, "images_expected": 10, "severity": "info",
    "message": "5 of 10 images", "hint": "", "state_age_s": 0.0,
}  # fmt: skip


class Service:
    """Answers the first client that is made; the others, which are those of the follower, wait for ever."""

    def __init__(self):
        self.status, self.clients, self.never = dict(STATUS), 0, threading.Event()

    def client(self):
        self.clients += 1
        return Client(self, is_answered=self.clients == 1)


class Client:
    def __init__(self, service, is_answered):
        self.service, self.is_answered = service, is_answered

    def __enter__(self):
        return self

    def __exit__(self, *what):
        pass

    def close(self):
        pass

    def status(self):
        if not self.is_answered:
            self.service.never.wait()
        return dict(self.service.status)

    def wait_for_image(self, *what, **how):
        self.service.never.wait()


def test_the_end_of_a_run_is_seen_while_the_follower_is_held_up():
    service = Service()
    detector = StandardDetector(service.client, on_change=lambda: None, on_image=lambda image: None, wanted=lambda: True)
    try:
        detector.start()
        detector.refresh()
        assert detector.view.state == "RUNNING"
        service.status |= {"state": "idle", "images_committed": 10, "severity": "success"}
        end = time.monotonic() + 20
        while detector.view.state != "STANDBY":
            assert time.monotonic() < end, detector.view
            time.sleep(0.02)
    finally:
        service.never.set()
        detector.close()
