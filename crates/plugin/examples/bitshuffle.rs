//! The plug-in that libhdf5 loads for filter 32008 (docs/plugin.md).

konkordia_plugin::export_filter!(konkordia_plugin::sys::BITSHUFFLE);
