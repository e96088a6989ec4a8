"""How calls are run: one after the other, or in several processes; and on which device."""
