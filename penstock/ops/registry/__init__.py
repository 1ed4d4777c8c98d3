"""The jobs of this driver as others see them: what observers record, folded on a thread of its own."""
