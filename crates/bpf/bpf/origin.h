/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What each object says of itself.
 */
#pragma once
#include "kernel.h"

/* The kernel offers what these programs call to programs under a licence that is compatible with the GPL. */
char programs_license[] SECTION("license") = "Dual MIT/GPL";

/* What this was compiled from and by, for the check that the object that is kept belongs to the sources. */
#ifdef ORIGIN
const char compiled_from[] SECTION("origin") = ORIGIN;
#endif
