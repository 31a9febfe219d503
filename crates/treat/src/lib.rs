//! Treatments: changes of the machine that are undone afterwards, each through one journal on disk.
