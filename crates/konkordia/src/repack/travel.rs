//! A small lossy copy beside the main file, made when the run is over: nothing that it does can cost data.
