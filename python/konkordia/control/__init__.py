"""Drivers: programs that Konkordia calls to drive a detector (``[control] driver``; docs/control.md).

A driver of your own is a class with one method for each action, and ``main``::

    from konkordia.control import Answer, Driver, Refused, main

    class Shutterless(Driver):
        settings = {"host": str}

        def arm(self) -> Answer:
            if self.order["images"] is None:
                raise Refused("it needs a number of images", hint="arm it with images")
            ...
            return {"set": {"images": self.order["images"]}}

    if __name__ == "__main__":
        main(Shutterless)
"""

from ._driver import Answer, Driver, Expected, Order, Refused, main

__all__ = ["Answer", "Driver", "Expected", "Order", "Refused", "main"]
