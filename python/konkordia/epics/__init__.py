"""A PV Access server for EPICS, a program of its own that drives a running service: ``python -m konkordia.epics --help``,
or ``konkordia-epics``. It needs ``pip install 'konkordia[epics]'``. docs/epics.md has the names of the PVs."""
