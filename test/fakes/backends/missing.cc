// Calls what no library has.
extern "C" void tranche_fault_nobody_has_this();
extern "C" [[gnu::visibility("hidden")]] void tranche_fault_call() { tranche_fault_nobody_has_this(); }
extern "C" [[gnu::visibility("hidden")]] void (*const tranche_fault_pointer)() = &tranche_fault_nobody_has_this;
