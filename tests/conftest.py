"""What all folders of tests share."""


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: measures time, or needs most of the machine; scripts/test runs these one at a time")
