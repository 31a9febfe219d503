// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The programs for the parts of a dispatch, in an object of their own: they need no map of the others.
 */
#include "dispatch.h"
#include "origin.h"
