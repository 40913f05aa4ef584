"""Who is connected to a socket of ZeroMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zmq


def zmq_of_extra() -> Any:
    """The module zmq, or an error that says how to get it."""
    try:
        import zmq
    except ImportError as error:
        raise ImportError("streams need pyzmq: pip install 'konkordia[stream]'") from error
    return zmq


class Peers:
    """Counts the connections of a socket, by its monitor. A peer of a kind that does not fit counts for a moment, until
    libzmq has closed its connection.

    Attributes
    ----------
    ever : bool
        True if a peer that fits has been connected.
    """

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        import zmq

        self._opened, self._shaken = (zmq.EVENT_CONNECTED, zmq.EVENT_ACCEPTED), zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._of = socket
        self.socket = socket.get_monitor_socket(self._opened[0] | self._opened[1] | self._shaken | zmq.EVENT_DISCONNECTED)
        self._handles: set[int] = set()
        self.ever = False

    @property
    def connected(self) -> int:
        """Peers that are connected now."""
        return len(self._handles)

    def look(self) -> bool:
        """Takes what has happened; true if the last peer has gone meanwhile, even if another one has come since."""
        from zmq.utils.monitor import recv_monitor_message

        has_gone = False
        while self.socket.poll(0):
            said = recv_monitor_message(self.socket)
            if said["event"] == self._shaken:
                self.ever = True
            elif said["event"] in self._opened:
                self._handles.add(said["value"])
            else:
                self._handles.discard(said["value"])
                has_gone = has_gone or not self._handles
        return has_gone

    def close(self) -> None:
        """Ends the monitor."""
        self._of.disable_monitor()
        self.socket.close(linger=0)


def closed(context: zmq.Context[Any], socket: zmq.Socket[Any], peers: Peers, linger_ms: int) -> None:
    """Closes a socket with its monitor and its context."""
    peers.close()
    socket.close(linger=linger_ms)
    context.term()
