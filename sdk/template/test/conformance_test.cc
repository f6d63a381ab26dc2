#include <tranche/conformance.h>

TRANCHE_CONFORMANCE_TEST(FakeAccelerator, BACKEND, BACKEND_CONFIG)
