/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What each object states about itself.
 */
#pragma once
#include "kernel.h"

/* The kernel offers the helpers of these programs only to programs under a licence that is compatible with the GPL. */
char programs_license[] SECTION("license") = "Dual MIT/GPL";

/* The sources and the compiler of this object, for the check that the stored object belongs to the sources. */
#ifdef ORIGIN
const char compiled_from[] SECTION("origin") = ORIGIN;
#endif
